/* The declaration of an operator of xccl_emu's tests: rows, multiplied by a number. */
#include "register/op_def_registry.h"

class ScaleRows : public ops::OpDef {
public:
    explicit ScaleRows(const char *name) : OpDef(name)
    {
        this->Input("in_rows").ParamType(REQUIRED).DataType({ge::DT_FLOAT16, ge::DT_FLOAT});
        this->Input("mask").ParamType(OPTIONAL).DataType({ge::DT_INT32, ge::DT_INT32});
        this->Output("out_rows").ParamType(REQUIRED).DataType({ge::DT_FLOAT16, ge::DT_FLOAT});
        this->Attr("rows").AttrType(OPTIONAL).Int(2);
        this->Attr("in_place").AttrType(OPTIONAL).Bool(false);
    }
};
OP_ADD(ScaleRows);

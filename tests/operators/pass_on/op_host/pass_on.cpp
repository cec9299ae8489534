/* The declaration of an operator of xccl_emu's tests: each rank gives its row to the next one. */
#include "register/op_def_registry.h"
#include "pass_on_tiling.h"

namespace ops {
class PassOn : public OpDef {
public:
    explicit PassOn(const char *name) : OpDef(name)
    {
        this->Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT})
            .Format({ge::FORMAT_ND});
        this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
        this->Attr("group").AttrType(REQUIRED).String();
        this->Attr("blocks").AttrType(REQUIRED).Int(); // of 8 elements
        this->AICore().AddConfig("ascend910_93");
    }
};
OP_ADD(PassOn);
} // namespace ops

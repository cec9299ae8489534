/* The name under which callers include what kernel_operator.h has. */
#pragma once
#include "kernel_operator.h"

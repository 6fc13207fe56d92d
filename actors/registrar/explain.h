/* actors/registrar/explain.h - the part that answers EXPLAIN. */
#ifndef SL_REGISTRAR_EXPLAIN_H
#define SL_REGISTRAR_EXPLAIN_H

#include "actors/registrar/base/core.h"

extern const struct reg_part reg_explain_part;

#endif

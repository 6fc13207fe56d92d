/* tests/support/own_id.h - the identity of a test's own process. */
#ifndef SL_TESTS_OWN_ID_H
#define SL_TESTS_OWN_ID_H

#include "runtime/base/sl_proc.h"

static inline struct sl_proc_id own_id(void)
{
    struct sl_proc_id self = {0};
    sl_err err = sl_proc_id_self(&self, NULL);
    SL_ASSERT(err == SL_OK);
    return self;
}

#endif

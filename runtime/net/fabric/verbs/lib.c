/* runtime/net/fabric/verbs/lib.c - see lib.h: loads libibverbs. */
#include "runtime/net/fabric/verbs/lib.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libibverbs.so.1"

static sl_err symbol(void *library, const char *name, void *at, struct sl_error *why)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, LIBRARY " lacks %s", name);
    }
    memcpy(at, &found, sizeof(found)); /* a function's address, as in POSIX */
    return SL_OK;
}

sl_err sl_verbs_load(struct sl_verbs_lib *out, struct sl_error *why)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (library == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "no " LIBRARY " (Debian: ibverbs-providers): %s",
                       dlerror());
    }
    sl_err err = symbol(library, "_ibv_query_gid_table", &out->verbs_query_gid_table, why);
#define SL_VERBS_LOAD(name, result, parameters)                       \
    if (err == SL_OK) {                                               \
        err = symbol(library, "ibv_" #name, &out->verbs_##name, why); \
    }
    SL_VERBS_TABLE(SL_VERBS_LOAD)
    if (symbol(library, "ibv_reg_dmabuf_mr", &out->verbs_reg_dmabuf_mr, NULL) != SL_OK) {
        out->verbs_reg_dmabuf_mr = NULL;
    }
    (void)dlclose(library); /* RTLD_NODELETE: it stays loaded */
    return err;
}

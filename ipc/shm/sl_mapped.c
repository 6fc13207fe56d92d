/* ipc/shm/sl_mapped.c - see sl_mapped.h. */
#include "ipc/shm/sl_mapped.h"

#include <stdlib.h>

static struct sl_shm_file_want want_in(const struct sl_mapped_kind *kind, const char *shm_dir)
{
    struct sl_shm_file_want want = kind->want;
    want.directory = shm_dir;
    return want;
}

sl_err sl_mapped_make(const struct sl_mapped_kind *kind, const char *shm_dir, struct sl_error *why)
{
    const struct sl_shm_file_want want = want_in(kind, shm_dir);
    struct sl_shm_file segment = {.fd = -1};
    sl_err err = sl_shm_file_open_or_renew(&want, &segment, why);
    sl_shm_file_close(&segment);
    return err;
}

sl_err sl_mapped_shm_file(const struct sl_mapped_kind *kind, const char *shm_dir, bool writable,
                          struct sl_shm_file *out, struct sl_error *why)
{
    const struct sl_shm_file_want want = want_in(kind, shm_dir);
    return sl_shm_file_open(&want, writable, out, why);
}

sl_err sl_mapped_adopt(const struct sl_mapped_kind *kind, struct sl_shm_file *segment, void **out,
                       struct sl_error *why)
{
    void *object = calloc(1, kind->object_bytes);
    if (object == NULL) {
        sl_shm_file_close(segment);
        return sl_fail(why, SL_ERR_NO_MEMORY, "%s: %zu bytes", kind->want.name, kind->object_bytes);
    }
    *(struct sl_shm_file *)object = *segment;
    *segment = (struct sl_shm_file){.fd = -1};
    sl_err err = kind->measure == NULL ? SL_OK : kind->measure(object, why);
    if (err != SL_OK) {
        sl_mapped_close(object);
        return err;
    }
    *out = object;
    return SL_OK;
}

sl_err sl_mapped_open(const struct sl_mapped_kind *kind, const char *shm_dir, void **out,
                      struct sl_error *why)
{
    struct sl_shm_file segment = {.fd = -1};
    sl_err err = sl_mapped_shm_file(kind, shm_dir, kind->writable, &segment, why);
    return err == SL_OK ? sl_mapped_adopt(kind, &segment, out, why) : err;
}

bool sl_mapped_is_current(const struct sl_mapped_kind *kind, const char *shm_dir,
                          const void *object)
{
    return object != NULL && sl_shm_file_current(object, shm_dir, kind->want.name) == SL_OK;
}

void *sl_mapped_follow(const struct sl_mapped_kind *kind, const char *shm_dir, void *object)
{
    if (object != NULL && sl_shm_file_followed(object, shm_dir, kind->want.name) != SL_OK) {
        sl_mapped_close(object);
        object = NULL;
    }
    if (object == NULL) {
        (void)sl_mapped_open(kind, shm_dir, &object, NULL);
    }
    return object;
}

void sl_mapped_close(void *object)
{
    sl_shm_file_close(object);
    free(object);
}

/* ipc/sl_mapped.c - see sl_mapped.h. */
#include "ipc/sl_mapped.h"

#include <stdlib.h>

sl_err sl_mapped_adopt(const struct sl_mapped_kind *kind, struct sl_segment *segment, void **out,
                       struct sl_error *why)
{
    void *object = calloc(1, kind->object_bytes);
    if (object == NULL) {
        sl_segment_close(segment);
        return sl_fail(why, SL_ERR_NO_MEMORY, "%s: %zu bytes", kind->name, kind->object_bytes);
    }
    *(struct sl_segment *)object = *segment;
    *segment = (struct sl_segment){.fd = -1};
    sl_err err = kind->measure == NULL ? SL_OK : kind->measure(object, why);
    if (err != SL_OK) {
        sl_mapped_close(&object);
        return err;
    }
    *out = object;
    return SL_OK;
}

sl_err sl_mapped_open(const struct sl_mapped_kind *kind, const char *shm_dir, void **out,
                      struct sl_error *why)
{
    const struct sl_segment_want want = {.directory = shm_dir,
                                         .name = kind->name,
                                         .kind = kind->kind,
                                         .data_bytes = kind->data_bytes};
    struct sl_segment segment = {.fd = -1};
    sl_err err = sl_segment_open(&want, kind->writable, &segment, why);
    return err == SL_OK ? sl_mapped_adopt(kind, &segment, out, why) : err;
}

bool sl_mapped_is_current(const struct sl_mapped_kind *kind, const char *shm_dir,
                          const void *object)
{
    return object != NULL && sl_segment_current(object, shm_dir, kind->name) == SL_OK;
}

void sl_mapped_follow(const struct sl_mapped_kind *kind, const char *shm_dir, void **object)
{
    if (*object != NULL && sl_segment_followed(*object, shm_dir, kind->name) != SL_OK) {
        sl_mapped_close(object);
    }
    if (*object == NULL) {
        (void)sl_mapped_open(kind, shm_dir, object, NULL);
    }
}

void sl_mapped_close(void **object)
{
    if (*object != NULL) {
        sl_segment_close(*object);
        free(*object);
        *object = NULL;
    }
}

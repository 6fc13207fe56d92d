/* client/lib/files.c - memory of this process that others map. A thread of the client passes
 * descriptors of it (runtime/base/sl_descriptors.h), so others need no right on this process, nor
 * its pid. */
#include "client/lib/engine.h"
#include "client/lib/pool.h"

#include <sys/stat.h>

static sl_err file_give(void *context, const struct sl_descriptors_request *ask, uint32_t first,
                        struct sl_descriptors_part *out, struct sl_error *why)
{
    (void)context;
    return first == 0 && ask->length_bytes == 0
               ? sl_descriptors_file(ask, out, why)
               : sl_fail(why, SL_ERR_NOT_FOUND, "files are handed over here");
}

sl_err sl_client_files_serve(struct sl_client *client, struct sl_error *why)
{
    pthread_mutex_lock(&client->lock);
    sl_err err = client->files != NULL
                     ? SL_OK
                     : sl_descriptors_serve(client->paths.runtime_dir, client->self.start_time,
                                            file_give, client, &client->files, why);
    pthread_mutex_unlock(&client->lock);
    return err;
}

static bool same_file(int one, int other)
{
    struct stat a, b;
    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Plain memory is copied by pid, so the node must see this process. Memory of sl_memory_alloc has a
 * descriptor instead: one for all regions in it. */
static sl_err plain_find(struct sl_engine *engine, uint32_t at, struct sl_error *why)
{
    struct sl_item_region *region = &engine->regions[at];
    const struct sl_item_region *last = at > 0 ? region - 1 : NULL;
    uint64_t offset_bytes = 0;
    const void *plain =
        (const void *)(uintptr_t)region->offset_bytes; /* NOLINT(performance-no-int-to-ptr) */
    int fd = sl_memory_ours_fd(plain, region->length_bytes, &offset_bytes);
    if (fd < 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "engine %s: from another container memory is registered by a descriptor "
                       "(sl_memory_alloc, a memfd), not by its address",
                       engine->name);
    }
    if (last != NULL && last->handle_kind == SL_MEMORY_SHARED_FD && same_file(fd, (int)last->fd)) {
        sl_auto_close(&fd);
        region->fd = last->fd;
    } else {
        engine->ours_fds[at] = fd;
        region->fd = (uint64_t)fd;
    }
    region->handle_kind = SL_MEMORY_SHARED_FD;
    region->offset_bytes = offset_bytes;
    region->start_time = engine->client->self.start_time;
    region->handle = (struct sl_bytes){0};
    return SL_OK;
}

sl_err sl_engine_files(struct sl_engine *engine, struct sl_error *why)
{
    bool any = false;
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < engine->region_count && err == SL_OK; i++) {
        const struct sl_item_region *region = &engine->regions[i];
        if (region->handle_kind == SL_MEMORY_PROCESS && engine->client->apart) {
            err = plain_find(engine, i, why);
        }
        any = any || region->handle_kind == SL_MEMORY_SHARED_FD ||
              region->handle_kind == SL_MEMORY_CUDA_FD;
    }
    return err == SL_OK && any ? sl_client_files_serve(engine->client, why) : err;
}

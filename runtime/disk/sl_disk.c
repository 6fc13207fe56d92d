/* runtime/disk/sl_disk.c - opens a disk by the kind in its disk_path entry; reads with retries. */
#include "runtime/disk/sl_disk.h"

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_config.h"

#include <string.h>
#include <time.h>

#define KIND_ROW(kind, open) {kind, open},
static const struct {
    const char *kind;
    sl_disk_open_fn *open;
} kinds[] = {SL_DISK_KINDS(KIND_ROW)};

sl_err sl_disk_open(const char *path, uint32_t queue_depth, bool direct, struct sl_disk **out,
                    int *event_fd, struct sl_error *why)
{
    const char *directory = sl_disk_path_dir(path);
    size_t length = (size_t)(directory - path);
    for (size_t i = 0; i < SL_COUNT(kinds); i++) {
        if (strlen(kinds[i].kind) == length && memcmp(kinds[i].kind, path, length) == 0) {
            return kinds[i].open(directory, queue_depth, direct, out, event_fd, why);
        }
    }
    return sl_fail(why, SL_ERR_CONFIG, "disk_path: '%.150s': there is no kind '%.*s'", path,
                   (int)SL_MIN(length, (size_t)32), path);
}

sl_err sl_disk_read(struct sl_disk *disk, int file, const struct sl_disk_other *other, void *memory,
                    uint64_t offset_bytes, uint64_t length_bytes, uint32_t *pauses_left)
{
    static const uint64_t pauses_ns[] = {SL_NS_PER_MS, 10 * SL_NS_PER_MS, 50 * SL_NS_PER_MS};
    _Alignas(SL_PAGE_BYTES) unsigned char page[SL_PAGE_BYTES];
    for (size_t tries = 0; tries <= SL_COUNT(pauses_ns) + 1; tries++) {
        uint64_t got = 0;
        if (disk->ops->read_now(disk, file, memory, offset_bytes, length_bytes, &got, NULL) ==
            SL_OK) {
            return got == length_bytes ? SL_OK : SL_ERR_NOT_FOUND;
        }
        if (tries < SL_COUNT(pauses_ns) && *pauses_left > 0) {
            const struct timespec pause = {.tv_nsec = (long)pauses_ns[tries]};
            --*pauses_left;
            (void)nanosleep(&pause, NULL);
        }
        bool out = tries == SL_COUNT(pauses_ns) && other->file >= 0;
        for (size_t i = 0; out && i < SL_COUNT(other->pages); i++) {
            out = disk->ops->read_now(disk, other->file, page, other->pages[i] * sizeof(page),
                                      sizeof(page), &got, NULL) != SL_OK;
        }
        if (out) {
            return SL_ERR_IO;
        }
    }
    return SL_ERR_CORRUPT;
}

/* runtime/sl_disk.c - a disk is opened by the kind that its entry of disk_path names. */
#include "runtime/sl_disk.h"

#include "runtime/sl_config.h"

#include <string.h>

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

/* client/tools/metrics/at.c - reads and writes HELPER.at; see at.h. */
#include "client/tools/metrics/at.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1100u

static const char *path_of(const char *runtime_dir, const char *helper, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/%s.at", runtime_dir, helper);
    return out;
}

bool helper_address_read(const char *runtime_dir, const char *helper, struct metrics_at *out)
{
    char path[PATH_BYTES];
    char text[METRICS_AT_BYTES + 64];
    int end = -1;
    *out = (struct metrics_at){0};
    (void)sl_proc_file_read(path_of(runtime_dir, helper, path), text, sizeof text);
    /* NOLINTNEXTLINE(cert-err34-c): a number that does not fit names no living process */
    if (sscanf(text, "%" SCNu32 " %" SCNu64 " %n", &out->proc.pid, &out->proc.start_time, &end) !=
            2 ||
        end < 0) {
        return false;
    }
    (void)snprintf(out->address, sizeof out->address, "%.*s", (int)strcspn(text + end, "\n"),
                   text + end);
    return out->proc.pid != 0 && sl_proc_alive(out->proc);
}

sl_err helper_address_write(const char *runtime_dir, const char *helper, const char *address,
                            struct sl_error *why)
{
    char path[PATH_BYTES];
    char new_path[PATH_BYTES + 32];
    struct sl_proc_id self = {0};
    sl_err err = sl_proc_id_of((uint32_t)getpid(), &self, why);
    if (err != SL_OK) {
        return err;
    }
    (void)snprintf(new_path, sizeof new_path, "%s.%" PRIu32, path_of(runtime_dir, helper, path),
                   self.pid);
    FILE *file = fopen(new_path, "we");
    if (file == NULL) {
        return sl_fail_os(why, errno, "write '%s'", new_path);
    }
    int length = fprintf(file, "%" PRIu32 " %" PRIu64 " %s\n", self.pid, self.start_time, address);
    if (fclose(file) != 0 || length < 0 || rename(new_path, path) != 0) {
        err = sl_fail_os(why, errno, "write '%s'", path);
        (void)unlink(new_path);
    }
    return err;
}

void helper_address_remove(const char *runtime_dir, const char *helper)
{
    char path[PATH_BYTES];
    struct metrics_at at;
    if (helper_address_read(runtime_dir, helper, &at) && at.proc.pid == (uint32_t)getpid()) {
        (void)unlink(path_of(runtime_dir, helper, path));
    }
}

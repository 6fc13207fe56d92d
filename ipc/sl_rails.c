/* ipc/sl_rails.c - see sl_rails.h. */
#include "ipc/sl_rails.h"

#include "runtime/sl_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOTE_BYTES 128u
#define PATH_BYTES 400u

static void note_path(const struct sl_env *env, uint32_t rail, const char *end,
                      char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%.350s/rail.%u%s", env->paths->runtime_dir, rail, end);
}

static sl_err note_write(const char *path, const char *text, struct sl_error *why)
{
    size_t length = strlen(text);
    SL_AUTO(close)
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return sl_fail_os(why, errno, "open '%s'", path);
    }
    ssize_t put = write(fd, text, length);
    return put == (ssize_t)length ? SL_OK
                                  : sl_fail_os(why, put < 0 ? errno : ENOSPC, "write '%s'", path);
}

sl_err sl_rail_note(const struct sl_env *env, uint32_t rail, struct sl_error *why)
{
    char path[PATH_BYTES], fresh[PATH_BYTES], boot[SL_BOOT_ID_BYTES], text[NOTE_BYTES];
    sl_err err = sl_boot_id(boot, why);
    if (err != SL_OK) {
        return err;
    }
    note_path(env, rail, "", path);
    note_path(env, rail, ".new", fresh);
    (void)snprintf(text, sizeof(text), "%s %u %" PRIu64 "\n", boot, env->self.pid,
                   env->self.start_time);
    err = note_write(fresh, text, why);
    if (err == SL_OK && rename(fresh, path) != 0) {
        err = sl_fail_os(why, errno, "rename '%s'", fresh);
    }
    return err;
}

void sl_rail_note_remove(const struct sl_env *env, uint32_t rail)
{
    char path[PATH_BYTES];
    note_path(env, rail, "", path);
    if (unlink(path) != 0 && errno != ENOENT) { /* it waits for our death then */
        sl_log_write(env->log, SL_LOG_WARN, 0, "note '%s' stays: %s", path, strerror(errno));
    }
}

/* Errors: SL_ERR_NOT_FOUND (none, or none that says anything), SL_ERR_OS. */
static sl_err note_read(const struct sl_env *env, uint32_t rail, struct sl_proc_id *out)
{
    char path[PATH_BYTES], now[SL_BOOT_ID_BYTES], boot[SL_BOOT_ID_BYTES], text[NOTE_BYTES];
    note_path(env, rail, "", path);
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return errno == ENOENT || errno == ELOOP ? SL_ERR_NOT_FOUND : SL_ERR_OS;
    }
    ssize_t got = read(fd, text, sizeof(text) - 1);
    if (got < 0 || sl_boot_id(now, NULL) != SL_OK) {
        return SL_ERR_OS;
    }
    text[got] = '\0';
    struct sl_proc_id read_id = {0};
    if (sscanf(text, "%39s %" SCNu32 " %" SCNu64, boot, &read_id.pid, &read_id.start_time) != 3 ||
        strcmp(boot, now) != 0) {
        return SL_ERR_NOT_FOUND;
    }
    *out = read_id;
    return SL_OK;
}

uint32_t sl_rails_noted(struct sl_env *env, uint32_t count, struct sl_proc_id out[SL_RAILS_MAX])
{
    uint32_t noted = 0;
    for (uint32_t rail = 1; rail < SL_MIN(count, SL_RAILS_MAX); rail++) {
        out[rail] = (struct sl_proc_id){0};
        sl_err err = note_read(env, rail, &out[rail]);
        bool lives = err == SL_OK ? env->ops->alive(env, out[rail]) : err != SL_ERR_NOT_FOUND;
        noted |= lives ? 1u << rail : 0;
    }
    return noted;
}

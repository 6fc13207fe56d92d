/* runtime/base/sl_log.c - JSON lines, one write(2) each, with two token buckets. */
#include "runtime/base/sl_log.h"

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_limits.h"
#include "runtime/base/sl_text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_BYTES 2048
#define LOG_TEXT_BYTES 768

struct bucket {
    uint64_t tokens;
    uint64_t filled_ns;
    uint64_t dropped;
};

struct sl_log {
    pthread_mutex_t lock;
    struct bucket loud;  /* error, warn */
    struct bucket quiet; /* the rest */
    enum sl_log_level level;
    uint32_t lines_per_s;
    int fd;
    bool owns_fd;
    char *path; /* only of a bounded file */
    uint64_t bytes_max;
    bool may_block; /* not a regular file: a pipe or terminal whose reader may have stopped */
    char actor[32];
};

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

sl_err sl_log_level_parse(const char *text, enum sl_log_level *out, struct sl_error *why)
{
    for (size_t i = 0; i < SL_COUNT(level_names); i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *out = (enum sl_log_level)i;
            return SL_OK;
        }
    }
    return sl_fail(why, SL_ERR_INVALID, "log level '%s' is none of error, warn, info, debug, trace",
                   text);
}

sl_err sl_log_open(const struct sl_log_options *options, struct sl_log **out, struct sl_error *why)
{
    if (options->actor == NULL || options->lines_per_s == 0) {
        return sl_fail(why, SL_ERR_INVALID,
                       "a log needs an actor's name and a rate above 0 lines/s");
    }
    struct sl_log *log = calloc(1, sizeof(*log));
    if (log == NULL) {
        return sl_fail_os(why, ENOMEM, "log");
    }
    log->fd = STDERR_FILENO;
    if (options->path != NULL) {
        log->fd = open(options->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (log->fd < 0) {
            sl_err err = sl_fail_os(why, errno, "open '%s'", options->path);
            free(log);
            return err;
        }
        log->owns_fd = true;
        log->bytes_max = options->bytes_max;
        log->path = options->bytes_max > 0 ? strdup(options->path) : NULL;
        if (options->bytes_max > 0 && log->path == NULL) {
            (void)close(log->fd);
            free(log);
            return sl_fail_os(why, ENOMEM, "log");
        }
    }
    struct stat status;
    log->may_block = fstat(log->fd, &status) != 0 || !S_ISREG(status.st_mode);
    (void)pthread_mutex_init(&log->lock, NULL);
    log->level = options->level;
    log->lines_per_s = options->lines_per_s;
    (void)snprintf(log->actor, sizeof(log->actor), "%s", options->actor);
    *out = log;
    return SL_OK;
}

void sl_log_close(struct sl_log **log)
{
    if (*log == NULL) {
        return;
    }
    if ((*log)->owns_fd) {
        (void)close((*log)->fd);
    }
    (void)pthread_mutex_destroy(&(*log)->lock);
    free((*log)->path);
    free(*log);
    *log = NULL;
}

/* Allows a burst of one second's lines. */
static bool bucket_take(struct bucket *bucket, uint64_t now_ns, uint32_t lines_per_s)
{
    uint64_t passed_ns = bucket->filled_ns == 0 ? SL_NS_PER_S : now_ns - bucket->filled_ns;
    uint64_t earned =
        passed_ns >= SL_NS_PER_S ? lines_per_s : passed_ns * lines_per_s / SL_NS_PER_S;
    if (earned > 0) {
        bucket->tokens = SL_MIN(bucket->tokens + earned, (uint64_t)lines_per_s);
        bucket->filled_ns = now_ns;
    }
    if (bucket->tokens == 0) {
        bucket->dropped++;
        return false;
    }
    bucket->tokens--;
    return true;
}

/* One byte of invalid UTF-8 (a cut character, a peer's name) would make the line, and for many
 * readers the file, unreadable. */
size_t sl_json_escape(char *out, size_t room, const char *text)
{
    size_t used = 0, length = 0;
    for (size_t left = strlen(text); left > 0 && used + 7 < room; left -= length, text += length) {
        uint32_t character = sl_text_next(text, left, &length);
        if (*text == '"' || *text == '\\') {
            out[used++] = '\\';
            out[used++] = *text;
        } else if (!sl_text_is_plain(character)) {
            used += (size_t)snprintf(out + used, room - used, "\\u%04" PRIx32,
                                     character == SL_TEXT_NO_CHARACTER ? 0xfffdu : character);
        } else {
            memcpy(out + used, text, length);
            used += length;
        }
    }
    out[used] = '\0';
    return used;
}

static size_t log_format(const struct sl_log *log, enum sl_log_level level, uint64_t trace_id,
                         uint64_t dropped, const char *text, char *line)
{
    uint64_t wall_ns = sl_clock_wall_ns();
    time_t seconds = (time_t)(wall_ns / SL_NS_PER_S);
    struct tm parts;
    char stamp[32];
    (void)gmtime_r(&seconds, &parts);
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
    size_t used = (size_t)snprintf(
        line, LOG_LINE_BYTES,
        "{\"ts\":\"%s.%06uZ\",\"ns\":%" PRIu64 ",\"level\":\"%s\",\"actor\":\"%s\",\"pid\":%d,",
        stamp, (unsigned)(wall_ns % SL_NS_PER_S / 1000), sl_clock_monotonic_ns(),
        level_names[level], log->actor, (int)getpid());
    if (trace_id != 0) {
        used += (size_t)snprintf(line + used, LOG_LINE_BYTES - used,
                                 "\"trace\":\"%016" PRIx64 "\",", trace_id);
    }
    if (dropped != 0) {
        used += (size_t)snprintf(line + used, LOG_LINE_BYTES - used, "\"dropped\":%" PRIu64 ",",
                                 dropped);
    }
    used += (size_t)snprintf(line + used, LOG_LINE_BYTES - used, "\"msg\":\"");
    used += sl_json_escape(line + used, LOG_LINE_BYTES - used - 4, text);
    used += (size_t)snprintf(line + used, LOG_LINE_BYTES - used, "\"}\n");
    return used;
}

/* Opens PATH again, which is no longer this file. Keeps the file if PATH cannot be opened, is not a
 * regular file of this user, or has further links. */
static void log_follow(struct sl_log *log)
{
    struct stat status;
    int fd =
        open(log->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
                    status.st_uid != geteuid() || status.st_nlink > 1)) {
        (void)close(fd);
        fd = -1;
    }
    if (fd >= 0) {
        (void)close(log->fd);
        log->fd = fd;
    }
}

static bool log_is_named(const struct sl_log *log, const struct stat *ours)
{
    struct stat named;
    return stat(log->path, &named) == 0 && named.st_dev == ours->st_dev &&
           named.st_ino == ours->st_ino;
}

/* Renames the file if it is too long, before a line is written. Only the process that holds its
 * lock, and still finds it under the name, renames it. Others do not wait: they write some more
 * lines to it. A removed file is created again. */
static void log_turn(struct sl_log *log)
{
    char old[4096];
    struct stat ours;
    if (log->path == NULL || fstat(log->fd, &ours) != 0) {
        return;
    }
    if (ours.st_nlink == 0) {
        log_follow(log);
        return;
    }
    if ((uint64_t)ours.st_size < log->bytes_max / 2 ||
        (size_t)snprintf(old, sizeof(old), "%s.1", log->path) >= sizeof(old)) {
        return;
    }
    if (log_is_named(log, &ours)) {
        bool locked = flock(log->fd, LOCK_EX | LOCK_NB) == 0;
        bool kept = !locked || (log_is_named(log, &ours) && rename(log->path, old) != 0);
        if (locked) {
            (void)flock(log->fd, LOCK_UN);
        }
        if (kept) {
            return;
        }
    }
    log_follow(log);
}

/* Writes a line, or drops it if that is not possible now: a full disk or a stopped reader must not
 * stop an actor. Lines are shorter than PIPE_BUF, so a pipe that polls writable takes one whole. */
static bool log_put(const struct sl_log *log, const char *line, size_t length)
{
    struct pollfd ready = {.fd = log->fd, .events = POLLOUT};
    if (log->may_block && (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0)) {
        return false;
    }
    struct stat ours;
    if (!log->may_block && fstat(log->fd, &ours) == 0 &&
        !sl_file_size_allowed((uint64_t)ours.st_size + length)) {
        return false;
    }
    ssize_t wrote = 0;
    do {
        wrote = write(log->fd, line, length);
    } while (wrote < 0 && errno == EINTR);
    return wrote >= 0;
}

void sl_log_write(struct sl_log *log, enum sl_log_level level, uint64_t trace_id,
                  const char *format, ...)
{
    if (log == NULL || level > log->level) {
        return;
    }
    char text[LOG_TEXT_BYTES];
    char line[LOG_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void)pthread_mutex_lock(&log->lock);
    struct bucket *bucket = level <= SL_LOG_WARN ? &log->loud : &log->quiet;
    if (bucket_take(bucket, sl_clock_monotonic_ns(), log->lines_per_s)) {
        uint64_t dropped = log->loud.dropped + log->quiet.dropped;
        log->loud.dropped = 0;
        log->quiet.dropped = 0;
        size_t length = log_format(log, level, trace_id, dropped, text, line);
        log_turn(log);
        if (!log_put(log, line, length)) {
            bucket->dropped += dropped + 1; /* the next line reports the count */
        }
    }
    (void)pthread_mutex_unlock(&log->lock);
}

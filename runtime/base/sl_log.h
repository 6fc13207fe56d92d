/* runtime/base/sl_log.h - a log of one JSON object per line:
 * {"ts":"2026-..Z","ns":..,"level":"info","actor":"..", "pid":..,"trace":"16 hex","msg":"text"}.
 * Lines over the rate are dropped and counted; the next line carries "dropped":N. error and warn
 * have their own token bucket, so that other levels cannot silence them. Each line is one write(2)
 * to an O_APPEND file. A file that reaches half of the limit is renamed to PATH.1, replacing an
 * older one, and the next line starts a new file. Any number of processes may write to the same
 * log. */
#ifndef SL_LOG_H
#define SL_LOG_H

#include "runtime/base/sl_error.h"

enum sl_log_level { SL_LOG_ERROR, SL_LOG_WARN, SL_LOG_INFO, SL_LOG_DEBUG, SL_LOG_TRACE };

struct sl_log; /* opaque; any thread */

struct sl_log_options {
    const char *path; /* NULL: stderr */
    const char *actor;
    enum sl_log_level level;
    uint32_t lines_per_s;
    uint64_t
        bytes_max; /* limit of both files together, except for one line; 0: none. Only for files */
};
sl_err sl_log_open(const struct sl_log_options *options, struct sl_log **out, struct sl_error *why);
void sl_log_close(struct sl_log **log);
sl_err sl_log_level_parse(const char *text, enum sl_log_level *out, struct sl_error *why);

/* Writes text as the inside of a JSON string, cut to room, and a NUL; returns its length. Invalid
 * UTF-8 becomes U+FFFD. */
size_t sl_json_escape(char *out, size_t room, const char *text);

/* log may be NULL (nothing is written). trace_id 0: none. */
void sl_log_write(struct sl_log *log, enum sl_log_level level, uint64_t trace_id,
                  const char *format, ...) SL_PRINTF(4, 5);

#endif

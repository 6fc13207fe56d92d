/* runtime/base/sl_log.h - one JSON object a line:
 * {"ts":"2026-..Z","ns":..,"level":"info","actor":"..", "pid":..,"trace":"16 hex","msg":"text"}.
 * Lines over the rate are dropped and counted; the next line that passes carries "dropped":N. error
 * and warn have a bucket of their own, so that chatter cannot silence them. A line is one write(2)
 * to an O_APPEND file. A file that has got long is renamed to PATH.1, in place of an older one, and
 * the next line begins a new one; any number of processes may write the same. */
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
    uint64_t bytes_max; /* of both files together, but for a line; 0: no bound. For files alone */
};
sl_err sl_log_open(const struct sl_log_options *options, struct sl_log **out, struct sl_error *why);
void sl_log_close(struct sl_log **log);
sl_err sl_log_level_parse(const char *text, enum sl_log_level *out, struct sl_error *why);

/* Writes text as the inside of a JSON string, as much as has room, and a NUL: gives its length.
 * Bytes that are no UTF-8 become U+FFFD. */
size_t sl_json_escape(char *out, size_t room, const char *text);

/* log may be NULL (nothing is written). trace_id 0: none. */
void sl_log_write(struct sl_log *log, enum sl_log_level level, uint64_t trace_id,
                  const char *format, ...) SL_PRINTF(4, 5);

#endif

/* client/tools/metrics/at.h - the file HELPER.at in the runtime directory, in which a helper of the
 * node publishes its address: sluice-metrics that of /metrics, sluice-events those of KV events.
 * One line: PID START ADDRESS. */
#ifndef SL_CLIENT_METRICS_AT_H
#define SL_CLIENT_METRICS_AT_H

#include "runtime/base/sl_error.h"
#include "runtime/base/sl_proc.h"

#define METRICS_AT_BYTES 700u

struct metrics_at {
    struct sl_proc_id proc;         /* of the helper */
    char address[METRICS_AT_BYTES]; /* HOST:PORT or a socket's path; events: two of ZeroMQ */
};
/* False: there is no such file, or its process has ended. */
bool helper_address_read(const char *runtime_dir, const char *helper, struct metrics_at *out);
/* Publishes the address of this process. Errors: SL_ERR_OS. */
sl_err helper_address_write(const char *runtime_dir, const char *helper, const char *address,
                            struct sl_error *why);
/* Removes the file, unless another process wrote it. */
void helper_address_remove(const char *runtime_dir, const char *helper);

#endif

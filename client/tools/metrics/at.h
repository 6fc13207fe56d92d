/* client/tools/metrics/at.h - where a helper of the node serves: the file HELPER.at in its runtime
 * directory, which it writes while it does: sluice-metrics /metrics, sluice-events KV events. One
 * line: PID START ADDRESS. */
#ifndef SL_CLIENT_METRICS_AT_H
#define SL_CLIENT_METRICS_AT_H

#include "runtime/base/sl_error.h"
#include "runtime/base/sl_proc.h"

#define METRICS_AT_BYTES 700u

struct metrics_at {
    struct sl_proc_id proc;         /* who serves */
    char address[METRICS_AT_BYTES]; /* HOST:PORT, or the path of a socket; of events ZeroMQ's two */
};
/* False: nobody says so, or who said so is gone. */
bool metrics_at_read(const char *runtime_dir, const char *helper, struct metrics_at *out);
/* This process serves at this address. Errors: SL_ERR_OS. */
sl_err metrics_at_write(const char *runtime_dir, const char *helper, const char *address,
                        struct sl_error *why);
/* It does no more. What another process wrote stays. */
void metrics_at_remove(const char *runtime_dir, const char *helper);

#endif

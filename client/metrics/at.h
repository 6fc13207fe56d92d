/* client/metrics/at.h - where the node serves /metrics: the file metrics.at in its runtime directory,
 * which the node's sluice-metrics writes while it does. One line: PID START ADDRESS. */
#ifndef SL_CLIENT_METRICS_AT_H
#define SL_CLIENT_METRICS_AT_H

#include "runtime/sl_error.h"
#include "runtime/sl_proc.h"

#define METRICS_AT_BYTES 300u

struct metrics_at {
    struct sl_proc_id proc;         /* who serves */
    char address[METRICS_AT_BYTES]; /* HOST:PORT, or the path of a socket */
};
/* False: nobody says so, or who said so is gone. */
bool metrics_at_read(const char *runtime_dir, struct metrics_at *out);
/* This process serves at this address. Errors: SL_ERR_OS. */
sl_err metrics_at_write(const char *runtime_dir, const char *address, struct sl_error *why);
/* It does no more. What another process wrote stays. */
void metrics_at_remove(const char *runtime_dir);

#endif

/* actors/transporter/rails/process.h - transporter.N (N from 1 on): drives one rail for the door,
 * transporter.0. It opens the fabric of its address, maps the node's arenas, and does what the door
 * orders. It decides nothing, and speaks to the door alone.
 *
 * A life of the rail serves one life of the door. When the door dies, when orders were lost, or when
 * they make no sense, the fabric is closed - from then on nothing lands and nothing is read by what
 * the door had ordered - and a new life begins. */
#ifndef SL_TRANSPORTER_RAILS_PROCESS_H
#define SL_TRANSPORTER_RAILS_PROCESS_H

#include "ipc/sl_msg.h"
#include "runtime/fabric/core/fabric.h"

struct tr_process; /* opaque */

/* Opens the fabric of entry `index` of the options' list; options' events are replaced. Texts of the
 * options are lent until the end. Errors: those of sl_fabric_open, SL_ERR_CONFIG (no such entry). */
sl_err tr_process_open(struct sl_env *env, uint32_t index, const struct sl_fabric_options *options,
                       struct tr_process **out, struct sl_error *why);
/* Nothing touches any memory afterwards. */
void tr_process_close(struct tr_process **process);
/* SL_ERR_INTERNAL: the process has to end. Answers requests. */
sl_err tr_process_handle(struct tr_process *process, const struct sl_msg *msg);
sl_err tr_process_tick(struct tr_process *process, uint64_t now_ns);

#endif

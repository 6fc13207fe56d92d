/* actors/transporter/publish/service.h - runs the directory client and its feed in the transporter:
 * settings, event loop, log, metrics. Without `directory = redis` neither exists, and self->service
 * is NULL. */
#ifndef SL_TRANSPORTER_PUBLISH_SERVICE_H
#define SL_TRANSPORTER_PUBLISH_SERVICE_H

#include "actors/transporter/state/state.h"

/* Reads the settings directory_* and opens the directory client: it publishes this node's keys and
 * answers lookups of holders from now on. events: callbacks of the actor, except link, which is
 * used here. Errors: SL_ERR_CONFIG, SL_ERR_UNSUPPORTED (no descriptors in this environment), those
 * of opening. */
sl_err tr_service_open(struct transporter *self, const struct sl_directory_events *events,
                       struct sl_error *why);
/* Publishes the address of this node. Errors: SL_ERR_CONFIG, SL_ERR_INVALID. */
sl_err tr_service_join(struct transporter *self, struct sl_error *why);
/* Closes it. If the actor was drained, this node's record is removed from the directory. */
void tr_service_close(struct transporter *self);
/* Does what is due and asks env for the next wake-up. */
void tr_service_step(struct transporter *self, uint64_t now_ns);
/* Why the directory cannot be reached now; "": it can, or there is none. */
const char *tr_service_trouble(const struct transporter *self);
/* Report of the directory about another node with our name; "": none (sl_directory_twin). */
const char *tr_service_twin(const struct transporter *self);

#endif

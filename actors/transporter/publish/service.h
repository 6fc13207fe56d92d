/* actors/transporter/publish/service.h - the directory and its feed as the transporter runs them:
 * settings, event loop, log, metrics. Without `directory = redis` there are none, and self->service
 * is NULL. */
#ifndef SL_TRANSPORTER_PUBLISH_SERVICE_H
#define SL_TRANSPORTER_PUBLISH_SERVICE_H

#include "actors/transporter/state/state.h"

/* Reads the settings directory...; this node is announced, its keys are published and it can be
 * guided from now on, while the process runs. events: what the rest of the actor hears; their link
 * is the service's. Errors: SL_ERR_CONFIG, SL_ERR_UNSUPPORTED (no descriptors in this environment),
 * those of opening. */
sl_err tr_service_open(struct transporter *self, const struct sl_directory_events *events,
                       struct sl_error *why);
/* Tells the directory where this node is asked. Errors: SL_ERR_CONFIG, SL_ERR_INVALID. */
sl_err tr_service_join(struct transporter *self, struct sl_error *why);
/* One that was drained takes this node's record along. */
void tr_service_close(struct transporter *self);
/* Does what is due and asks env for the next wake-up. */
void tr_service_step(struct transporter *self, uint64_t now_ns);
/* Why the directory cannot be asked now; "": it can, or there is none. */
const char *tr_service_trouble(const struct transporter *self);
/* What the directory says of another node with our name; "": nothing (sl_directory_twin). */
const char *tr_service_twin(const struct transporter *self);

#endif

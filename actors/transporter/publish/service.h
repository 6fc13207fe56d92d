/* actors/transporter/publish/service.h - the directory and its feed as the transporter runs them:
 * settings, event loop, log, metrics. */
#ifndef SL_TRANSPORTER_PUBLISH_SERVICE_H
#define SL_TRANSPORTER_PUBLISH_SERVICE_H

#include "runtime/directory/directory.h"
#include "runtime/sl_env.h"

struct sl_directory_service; /* opaque; one thread */

/* What the rest of the actor wants to hear; may be NULL each. Look-ups need found(). */
struct sl_directory_wishes {
    void *context;
    void (*found)(void *context, uint64_t cookie, sl_err code,
                  const struct sl_directory_found *found, uint32_t count);
    void (*members)(void *context);
};
/* Reads the settings directory...; with `redis` this node (the transporter of rank 0) is announced
 * and its keys are published from now on, while the process runs. Errors: SL_ERR_CONFIG,
 * SL_ERR_UNSUPPORTED (no descriptors in this environment), those of opening. */
sl_err sl_directory_service_open(struct sl_env *env, const struct sl_directory_wishes *wishes,
                                 struct sl_directory_service **out, struct sl_error *why);
/* orderly: this node's record goes too. */
void sl_directory_service_close(struct sl_directory_service **service, bool orderly);
/* Does what is due and asks env for the next wake-up. */
void sl_directory_service_step(struct sl_directory_service *service, uint64_t now_ns);
/* Where other nodes reach this one; "": nowhere. Errors: SL_ERR_INVALID. */
sl_err sl_directory_service_addresses(struct sl_directory_service *service, const char *control,
                                      const char *fabric, struct sl_error *why);
/* Why the directory cannot be asked now; "": it can, or there is none. */
const char *sl_directory_service_trouble(const struct sl_directory_service *service);
/* What the directory says of another node with our name; "": nothing (sl_directory_twin). */
const char *sl_directory_service_twin(const struct sl_directory_service *service);
/* For look-ups and members. Borrowed. After a look-up call step once, or it waits for the next. */
struct sl_directory *sl_directory_service_directory(struct sl_directory_service *service);

#endif

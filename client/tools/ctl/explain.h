/* client/tools/ctl/explain.h - why keys, or blocks of an op, are not here. */
#ifndef SL_CLIENT_CTL_EXPLAIN_H
#define SL_CLIENT_CTL_EXPLAIN_H

#include "client/tools/ctl/commands.h"

/* ---- explain.c ---- */
json_t *explain_json(struct sl_object_key key, const struct sl_miss_reason *reason);
/* For any number of keys. Errors: those of sl_explain. */
sl_err explain_keys(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                    struct sl_miss_reason *reasons, struct sl_error *why);

/* ---- explain_op.c ---- */
int explain_request(struct ctl *ctl, const char *id);

#endif

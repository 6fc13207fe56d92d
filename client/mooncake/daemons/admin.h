/* client/mooncake/daemons/admin.h - what mooncake_master tells and does over HTTP. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_ADMIN_H
#define SL_CLIENT_MOONCAKE_DAEMONS_ADMIN_H

#include "client/lib/sluice.h"
#include "client/mooncake/daemons/http.h"
#include "client/mooncake/daemons/node.h"

#include <jansson.h>
#include <pthread.h>

#define MC_CALL_NS (2 * SL_NS_PER_S) /* longest wait for the registrar */

/* Of a whole process; handlers run on many threads. */
struct mc_admin {
    const char *program; /* "mooncake_master" */
    char instance[64];
    struct sl_paths paths;
    uint32_t disk_count;   /* 0: no disk tier */
    uint64_t disk_bytes;   /* its ceiling */
    char address[256];     /* HOST:PORT of this master */
    pthread_rwlock_t lock; /* of client: whoever uses it reads */
    struct sl_client *client;
};
/* Fills what the node tells; borrows nothing of it. */
void mc_admin_init(struct mc_admin *admin, const char *program, const struct mc_node *node,
                   const char *address);
void mc_admin_fini(struct mc_admin *admin);

/* A client of the node, opened when first needed; to be given back. NULL: there is no node; the
 * answer says so (503). Any thread. */
struct sl_client *mc_admin_client(struct mc_admin *admin, struct mc_answer *answer);
void mc_admin_client_return(struct mc_admin *admin);
/* To be told what a call on it gave, after it was given back: one that has seen too many nodes come
 * and go is closed, and opened anew by whoever asks next. */
void mc_admin_client_judge(struct mc_admin *admin, sl_err err);
/* A failed call in HTTP: 503 where the node does not answer, else 500. */
void mc_answer_failed(struct mc_answer *answer, const struct sl_error *why);
/* Takes the object. */
void mc_answer_json(struct mc_answer *answer, unsigned status, json_t *object);
/* Text of any bytes as JSON. New reference; bytes that are no UTF-8 become '?'. */
json_t *mc_json_text(const char *bytes, size_t length);
/* Decodes the argument. False: it is not there, empty, or malformed; the answer says so (400).
 * Gives *out (free). */
bool mc_argument(const struct mc_request *request, const char *name, char **out, size_t *length,
                 struct mc_answer *answer);

extern const struct mc_route mc_admin_routes[];
extern const uint32_t mc_admin_route_count;

/* ---- admin_keys.c: every handler is a mc_route_fn with a struct mc_admin ---- */
void mc_get_all_keys(void *context, const struct mc_request *request, struct mc_answer *answer);
void mc_query_key(void *context, const struct mc_request *request, struct mc_answer *answer);
void mc_batch_query_keys(void *context, const struct mc_request *request, struct mc_answer *answer);
void mc_remove_all(void *context, const struct mc_request *request, struct mc_answer *answer);

/* ---- admin_segments.c ---- */
/* The node's contributions; infos has SL_CONTRIBUTIONS_MAX. A node without any has one segment, its
 * memory, by its instance's name. False: the answer says why. */
bool mc_segments(struct mc_admin *admin, struct sl_contribution_info *infos, uint32_t *count,
                 struct mc_answer *answer);
void mc_get_all_segments(void *context, const struct mc_request *request, struct mc_answer *answer);
void mc_get_segments_detail(void *context, const struct mc_request *request,
                            struct mc_answer *answer);
void mc_query_segment(void *context, const struct mc_request *request, struct mc_answer *answer);
void mc_segments_status(void *context, const struct mc_request *request, struct mc_answer *answer);

/* ---- admin_metrics.c ---- */
void mc_metrics(void *context, const struct mc_request *request, struct mc_answer *answer);
void mc_metrics_summary(void *context, const struct mc_request *request, struct mc_answer *answer);

#endif

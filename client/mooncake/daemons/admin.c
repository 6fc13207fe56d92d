/* client/mooncake/daemons/admin.c - the paths, the master's state, and what handlers share. */
#include "client/mooncake/daemons/admin.h"

#include <stdlib.h>
#include <string.h>

void mc_admin_init(struct mc_admin *admin, const char *program, const struct mc_node *node,
                   const char *address)
{
    *admin = (struct mc_admin){.program = program, .paths = node->paths};
    admin->disk_bytes = sl_config_u64(node->config, SL_SET_disk);
    admin->disk_count = admin->disk_bytes != 0 ? node->paths.disk_count : 0;
    (void)snprintf(admin->instance, sizeof admin->instance, "%s", node->instance);
    (void)snprintf(admin->address, sizeof admin->address, "%s", address);
    pthread_rwlock_init(&admin->lock, NULL);
}

void mc_admin_fini(struct mc_admin *admin)
{
    sl_client_close(&admin->client);
    pthread_rwlock_destroy(&admin->lock);
}

/* ---- the node's client ---- */

/* Opens it, anew when the old one has seen too many nodes come and go. */
static sl_err client_open(struct mc_admin *admin, struct sl_error *why)
{
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .instance = admin->instance,
                                              .timeout_ns = MC_CALL_NS,
                                              .leases =
                                                  false}; /* who looks from outside keeps nothing */
    sl_err err = SL_OK;
    pthread_rwlock_wrlock(&admin->lock);
    if (admin->client == NULL) {
        err = sl_client_open(&options, &admin->client, why);
    }
    pthread_rwlock_unlock(&admin->lock);
    return err;
}

struct sl_client *mc_admin_client(struct mc_admin *admin, struct mc_answer *answer)
{
    struct sl_error why = {0};
    if (!mc_node_ready(&admin->paths, admin->disk_count, &why)) {
        mc_answer_text(answer, 503, "node '%s' is not ready: %s\n", admin->instance, why.text);
        return NULL;
    }
    pthread_rwlock_rdlock(&admin->lock);
    while (admin->client == NULL) {
        pthread_rwlock_unlock(&admin->lock);
        if (client_open(admin, &why) != SL_OK) {
            mc_answer_failed(answer, &why);
            return NULL;
        }
        pthread_rwlock_rdlock(&admin->lock);
    }
    return admin->client;
}

void mc_admin_client_return(struct mc_admin *admin)
{
    pthread_rwlock_unlock(&admin->lock);
}

void mc_admin_client_judge(struct mc_admin *admin, sl_err err)
{
    if (err == SL_ERR_LIMIT) {
        pthread_rwlock_wrlock(&admin->lock);
        sl_client_close(&admin->client);
        pthread_rwlock_unlock(&admin->lock);
    }
}

/* ---- answers ---- */

void mc_answer_failed(struct mc_answer *answer, const struct sl_error *why)
{
    enum sl_error_class kind = sl_err_class(why->code);
    bool later = kind == SL_CLASS_RETRY || kind == SL_CLASS_PEER;
    mc_answer_text(answer, later ? 503 : 500, "%s\n", why->text);
}

void mc_answer_json(struct mc_answer *answer, unsigned status, json_t *object)
{
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text == NULL) {
        mc_answer_text(answer, 500, "out of memory\n");
        return;
    }
    answer->status = status;
    answer->type = "application/json";
    answer->text = text;
    answer->length_bytes = strlen(text);
}

json_t *mc_json_text(const char *bytes, size_t length)
{
    json_t *text = json_stringn(bytes, length);
    if (text != NULL) {
        return text;
    }
    char *plain = malloc(length + 1);
    if (plain == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < length; i++) {
        plain[i] = (char)((unsigned char)bytes[i] < 0x80 ? bytes[i] : '?');
    }
    text = json_stringn(plain, length);
    free(plain);
    return text;
}

bool mc_argument(const struct mc_request *request, const char *name, char **out, size_t *length,
                 struct mc_answer *answer)
{
    const char *raw = mc_request_raw(request, name);
    if (raw == NULL || raw[0] == '\0') {
        mc_answer_text(answer, 400, "the argument '%s' is missing\n", name);
        return false;
    }
    size_t raw_length = strlen(raw);
    char *text = malloc(raw_length + 1);
    ssize_t got = text != NULL ? mc_unescape(raw, raw_length, text) : 0;
    if (text == NULL || got < 0) {
        free(text);
        mc_answer_text(answer, got < 0 ? 400 : 500, "the argument '%s' is malformed\n", name);
        return false;
    }
    *out = text;
    *length = (size_t)got;
    return true;
}

/* ---- state ---- */

static void get_health(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct mc_admin *admin = context;
    struct sl_error why = {0};
    (void)request;
    bool ready = mc_node_ready(&admin->paths, admin->disk_count, &why);
    mc_answer_json(answer, ready ? 200 : 503,
                   json_pack("{s:s, s:s, s:s, s:b, s:s, s:i, s:s, s:s}", "status",
                             ready ? "ok" : "starting", "role", "leader", "ha_state",
                             ready ? "serving" : "starting", "service_ready", ready,
                             "leader_address", admin->address, "view_version", 0, "instance",
                             admin->instance, "reason", why.text));
}

static void get_role(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    (void)context;
    (void)request;
    mc_answer_text(answer, 200, "leader\n");
}

static void get_ha_status(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct mc_admin *admin = context;
    (void)request;
    bool ready = mc_node_ready(&admin->paths, admin->disk_count, NULL);
    mc_answer_text(answer, ready ? 200 : 503, "%s\n", ready ? "serving" : "starting");
}

static void get_leader(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    const struct mc_admin *admin = context;
    (void)request;
    mc_answer_json(answer, 200,
                   json_pack("{s:s, s:i}", "leader_address", admin->address, "view_version", 0));
}

static void get_paths(void *context, const struct mc_request *request, struct mc_answer *answer);

const struct mc_route mc_admin_routes[] = {
    {"/", MC_GET, get_paths, 0},
    {"/metrics", MC_GET, mc_metrics, 0},
    {"/metrics/summary", MC_GET, mc_metrics_summary, 0},
    {"/health", MC_GET, get_health, 0},
    {"/role", MC_GET, get_role, 0},
    {"/ha_status", MC_GET, get_ha_status, 0},
    {"/leader", MC_GET, get_leader, 0},
    {"/get_all_keys", MC_GET, mc_get_all_keys, 0},
    {"/get_all_segments", MC_GET, mc_get_all_segments, 0},
    {"/get_segments_detail", MC_GET, mc_get_segments_detail, 0},
    {"/query_segment", MC_GET, mc_query_segment, 0},
    {"/query_key", MC_GET, mc_query_key, 0},
    {"/batch_query_keys", MC_GET, mc_batch_query_keys, 0},
    {"/api/v1/segments/status", MC_GET, mc_segments_status, 0},
    {"/api/v1/remove_all", MC_POST, mc_remove_all, MC_POST},
};
const uint32_t mc_admin_route_count = SL_COUNT(mc_admin_routes);

static void get_paths(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    char text[1024];
    size_t used = 0;
    (void)context;
    (void)request;
    for (uint32_t i = 0; i < mc_admin_route_count && used < sizeof text; i++) {
        const struct mc_route *route = &mc_admin_routes[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %s\n",
                                 route->methods == MC_GET ? "GET" : "POST", route->path);
    }
    mc_answer_text(answer, 200, "%s", text);
}

/* client/mooncake/store/open.c - life cycle of a store: create, setup, uses, close. */
#include "client/mooncake/store/internal.h"
#include "runtime/base/sl_parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL_MS_DEFAULT 3000
#define CEILING_CALLS   10      /* most timeouts that a call may take while replies arrive */
#define CALL_MS_MAX     3600000 /* the longest op_timeout */
#define BYTE_NS         4       /* ns for each byte of a call: 250 MB/s, as of a slow disk */
#define HEALTH_NS       (2 * SL_NS_PER_S)

sl_err sl_store_create(struct sl_store **out)
{
    struct sl_store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    (void)pthread_mutex_init(&store->life, NULL);
    (void)pthread_mutex_init(&store->lock, NULL);
    (void)pthread_cond_init(&store->changed, NULL);
    store_fork_add(store);
    *out = store;
    return SL_OK;
}

void sl_store_destroy(struct sl_store **store)
{
    struct sl_store *gone = *store;
    *store = NULL;
    if (gone == NULL) {
        return;
    }
    (void)sl_store_close(gone);
    store_fork_take(gone);
    free(gone->regions);
    (void)pthread_cond_destroy(&gone->changed);
    (void)pthread_mutex_destroy(&gone->lock);
    (void)pthread_mutex_destroy(&gone->life);
    free(gone);
}

/* ---- uses ---- */

void store_hold(struct store_base *base)
{
    (void)atomic_fetch_add_explicit(&base->refs, 1, memory_order_relaxed);
}

static void port_release(struct store_base *base)
{
    if (base->port_fd >= 0) {
        (void)close(base->port_fd);
    }
    base->port_fd = -1;
}

static void base_free(struct store_base *base)
{
    store_pools_end(base);
    if (base->pid == getpid()) { /* a forked child does not touch the parent's client */
        sl_client_close(&base->quiet);
        sl_client_close(&base->client);
    }
    port_release(base);
    (void)pthread_mutex_destroy(&base->quiet_lock);
    free(base);
}

void store_leave(struct store_base *base)
{
    if (atomic_fetch_sub_explicit(&base->refs, 1, memory_order_acq_rel) == 1) {
        base_free(base);
    }
}

struct store_base *store_enter(struct sl_store *store)
{
    pthread_mutex_lock(&store->lock);
    struct store_base *base = store->base;
    if (base != NULL) {
        store_hold(base);
    }
    pthread_mutex_unlock(&store->lock);
    return base;
}

/* Returns how long a call may wait for a reply; 0: as the node's setting op_timeout. Mooncake's 30
 * s are for a busy master on another host. A node's registrar replies within milliseconds, and an
 * engine whose step hangs for 30 s counts as dead. */
static uint64_t call_ns_of_environment(void)
{
    const char *own = getenv("SLUICE_OP_TIMEOUT");
    const char *set = getenv("MC_RPC_TIMEOUT_MS");
    uint64_t ms = CALL_MS_DEFAULT;
    bool endless = set != NULL && set[0] == '-';
    if (set != NULL && sl_parse_within(set + endless, 1, UINT64_MAX, &ms)) {
        ms = endless ? CALL_MS_MAX : SL_MIN(ms, CALL_MS_MAX);
    }
    return own != NULL && own[0] != '\0' ? 0 : ms * STORE_NS_PER_MS;
}

uint64_t store_call_ns(const struct store_base *base, uint64_t bytes)
{
    const uint64_t most_ns = CALL_MS_MAX * STORE_NS_PER_MS;
    if (base->call_ns == 0) {
        return 0;
    }
    return bytes > most_ns / BYTE_NS ? most_ns : SL_MIN(base->call_ns + bytes * BYTE_NS, most_ns);
}

uint64_t store_ceiling_ns(const struct store_base *base, uint64_t bytes)
{
    uint64_t call_ns =
        base->call_ns == 0 ? CALL_MS_DEFAULT * STORE_NS_PER_MS : store_call_ns(base, bytes);
    return sl_clock_monotonic_ns() + CEILING_CALLS * call_ns;
}

static sl_err client_open(const struct store_base *base, bool leases, struct sl_client **out,
                          struct sl_error *why)
{
    char text[64];
    const char *const settings[] = {base->call_ns == 0 ? NULL : text, NULL};
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .instance = base->instance,
                                              .leases = leases,
                                              .settings = settings};
    (void)snprintf(text, sizeof text, "op_timeout=%" PRIu64 "ms", base->call_ns / STORE_NS_PER_MS);
    sl_err err = sl_client_open(&options, out, why);
    if (err == SL_OK && base->prefix_length > 2) { /* the tenant's name between two marks */
        (void)snprintf(text, sizeof text, "%.*s", (int)base->prefix_length - 2, base->prefix + 1);
        sl_client_tenant(*out, text);
    }
    return err;
}

struct sl_client *store_quiet_client(struct store_base *base)
{
    pthread_mutex_lock(&base->quiet_lock);
    if (base->quiet == NULL && client_open(base, false, &base->quiet, NULL) != SL_OK) {
        base->quiet = NULL;
    }
    struct sl_client *quiet = base->quiet;
    pthread_mutex_unlock(&base->quiet_lock);
    return quiet;
}

/* ---- closing ---- */

/* Waits for a reply of the registrar, which has then handled all earlier messages. The content of
 * the request does not matter. */
static sl_err registrar_ask(struct sl_client *client, uint64_t timeout_ns)
{
    static const struct sl_object_key asked = {.at = "health", .length = 6};
    struct sl_miss_reason reason;
    return sl_explain(client, &asked, 1, &reason, timeout_ns, NULL);
}

/* Ends the current setup. Called with `life` held, so that a new setup shares no state with it. */
static void store_end(struct sl_store *store)
{
    pthread_mutex_lock(&store->lock);
    struct store_base *base = store->base;
    bool begun = store->puts.count > 0;
    store->base = NULL;
    pthread_mutex_unlock(&store->lock);
    if (base == NULL) {
        return;
    }
    bool ours = base->pid == getpid();
    store_sessions_end(store);
    if (ours && base->contributes) {
        (void)sl_segment_unmount(base->client, base->name, STORE_WITHDRAW_NS, NULL);
    } else if (ours && begun) {
        (void)registrar_ask(base->client, STORE_WITHDRAW_NS);
    }
    store_segments_end(store, ours ? base->client : NULL);
    store_regions_end(store);
    port_release(base); /* held buffers keep the client, but not the name */
    store_leave(base);
}

int sl_store_close(struct sl_store *store)
{
    pthread_mutex_lock(&store->life);
    store_end(store);
    pthread_mutex_unlock(&store->life);
    return SL_STORE_OK;
}

/* ---- setting up ---- */

static sl_err tenant_set(struct store_base *base, const char *tenant, struct sl_error *why)
{
    if (tenant == NULL || tenant[0] == '\0' || strcmp(tenant, "default") == 0) {
        return SL_OK;
    }
    size_t length = strlen(tenant);
    if (length + 2 > sizeof base->prefix || strchr(tenant, SL_STORE_TENANT_MARK) != NULL) {
        return sl_fail(why, SL_ERR_CONFIG, "tenant_id: at most %zu bytes, none of them 1",
                       sizeof base->prefix - 2);
    }
    base->prefix[0] = SL_STORE_TENANT_MARK;
    memcpy(base->prefix + 1, tenant, length);
    base->prefix[length + 1] = SL_STORE_TENANT_MARK;
    base->prefix_length = (uint32_t)length + 2;
    return SL_OK;
}

static sl_err base_open(struct store_base *base, const struct sl_store_setup *setup,
                        struct sl_error *why)
{
    sl_err err = tenant_set(base, setup->tenant, why);
    (void)snprintf(base->instance, sizeof base->instance, "%s", setup->instance);
    (void)snprintf(base->name, sizeof base->name, "%s", setup->name);
    base->dummy = setup->dummy;
    base->local_bytes = setup->local_buffer_bytes;
    atomic_init(&base->local_free_bytes, setup->local_buffer_bytes);
    if (err == SL_OK) {
        err = client_open(base, true, &base->client, why);
    }
    if (err != SL_OK || setup->segment_bytes == 0) {
        return err;
    }
    err = sl_segment_mount(base->client, base->name, setup->segment_bytes, false,
                           STORE_CONTRIBUTE_NS, why);
    base->contributes = err == SL_OK;
    /* A node without contributions has memory for all clients. */
    return err == SL_ERR_UNSUPPORTED ? SL_OK : err;
}

sl_err sl_store_setup(struct sl_store *store, const struct sl_store_setup *setup,
                      struct sl_error *why)
{
    struct sl_error reason = {.code = SL_OK};
    (void)sl_store_close(store);
    struct store_base *base = calloc(1, sizeof *base);
    if (base == NULL) {
        (void)close(setup->port_fd);
        return sl_fail(why, SL_ERR_NO_MEMORY, "store: %zu bytes", sizeof *base);
    }
    atomic_init(&base->refs, 1);
    (void)pthread_mutex_init(&base->quiet_lock, NULL);
    base->port_fd = setup->port_fd;
    base->pid = getpid();
    base->call_ns = call_ns_of_environment();
    sl_err err = base_open(base, setup, &reason);
    if (err != SL_OK) {
        store_leave(base);
        *why = reason;
        return err;
    }
    /* The node works in a degraded state: report it to the caller, not only in the node's log. */
    if (sl_client_health(base->client, reason.text)) {
        (void)snprintf(why->text, sizeof why->text, "%s", reason.text);
    }
    pthread_mutex_lock(&store->life);
    store_end(store); /* another thread may have set it up meanwhile: the last setup wins */
    pthread_mutex_lock(&store->lock);
    store->base = base;
    pthread_mutex_unlock(&store->lock);
    pthread_mutex_unlock(&store->life);
    return SL_OK;
}

/* ---- state ---- */

bool sl_store_is_set_up(struct sl_store *store)
{
    pthread_mutex_lock(&store->lock);
    bool set_up = store->base != NULL;
    pthread_mutex_unlock(&store->lock);
    return set_up;
}

void sl_store_hostname(struct sl_store *store, char name[SL_STORE_NAME_BYTES])
{
    pthread_mutex_lock(&store->lock);
    (void)snprintf(name, SL_STORE_NAME_BYTES, "%s", store->base == NULL ? "" : store->base->name);
    pthread_mutex_unlock(&store->lock);
}

int sl_store_health(struct sl_store *store)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    if (base == NULL) {
        return SL_STORE_NOT_SET_UP;
    }
    return registrar_ask(base->client, HEALTH_NS) == SL_OK ? SL_STORE_HEALTHY
                                                           : SL_STORE_UNREACHABLE;
}

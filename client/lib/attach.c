/* client/lib/attach.c - opens and closes a client, and attaches to the node's shared memory. */
#include "client/lib/deferred.h"
#include "client/lib/figures.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ATTACH_NS_DEFAULT (2 * SL_NS_PER_S)
#define ATTACH_RETRY_NS   (20 * SL_NS_PER_MS)
#define CHECK_EVERY_NS \
    (100 * SL_NS_PER_MS) /* delay until a reader notices that the node was replaced */
/* A node that is being replaced has no files for a moment; a stopped one has none for longer. */
#define GONE_NS     (500 * SL_NS_PER_MS)
#define ACCESS_RING 4096u

struct sl_attachment *sl_client_attachment(const struct sl_client *client)
{
    return atomic_load_explicit(&client->current, memory_order_acquire);
}

uint32_t sl_client_life(const struct sl_client *client)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    return sl_client_attachment(client)->number;
}

void sl_attachment_hold(struct sl_attachment *at)
{
    (void)atomic_fetch_add_explicit(&at->holds, 1, memory_order_relaxed);
}

struct sl_attachment *sl_attachment_acquire(const struct sl_client *client)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct sl_attachment *at = sl_client_attachment(client);
    sl_attachment_hold(at);
    return at;
}

void sl_attachment_release(struct sl_client *client, struct sl_attachment *at)
{
    /* Partner of the acquire in is_unused. */
    (void)atomic_fetch_sub_explicit(&at->holds, 1, memory_order_release);
    sl_client_sweep(client);
}

/* ---- attachments ---- */

static void attachment_close(const struct sl_client *client, struct sl_attachment *attachment)
{
    bool is_ours = sl_client_is_ours(client);
    if (attachment == NULL) {
        return;
    }
    (is_ours ? sl_pins_destroy : sl_pins_leave)(&attachment->pins);
    sl_client_stats_close(attachment, is_ours);
    for (uint32_t i = 0; i < SL_CLIENT_ARENAS_MAX; i++) {
        struct sl_arena *arena = atomic_load_explicit(&attachment->arenas[i], memory_order_relaxed);
        sl_gpu_forget(arena);
        sl_arena_close(&arena);
    }
    sl_client_leases_close(attachment);
    sl_index_view_close(&attachment->view);
    free(attachment);
}

static sl_err pins_open(struct sl_client *client, struct sl_attachment *at, struct sl_error *why)
{
    for (const struct sl_attachment *old = client->attachments; old != NULL; old = old->next) {
        sl_pins_unname(old->pins);
    }
    struct sl_arena *arena = atomic_load_explicit(&at->arenas[0], memory_order_relaxed);
    const struct sl_pins_options options = {
        .shm_dir = client->paths.shm_dir,
        .name = client->name,
        .slot_count = (uint32_t)sl_config_u64(client->config, SL_SET_client_pins_max),
        .access_count = ACCESS_RING,
        .self = client->self,
        .pinned_bytes_max = sl_arena_data_bytes(arena) / 2,
    };
    return sl_pins_create(&options, &at->pins, why);
}

static struct sl_attachment *attachment_open(struct sl_client *client, struct sl_error *why)
{
    struct sl_attachment *at = calloc(1, sizeof *at);
    if (at == NULL) {
        (void)sl_fail(why, SL_ERR_NO_MEMORY, "attach: %zu bytes", sizeof *at);
        return NULL;
    }
    struct sl_arena *arena = NULL;
    sl_err err = sl_index_view_open(client->paths.shm_dir, &at->view, why);
    if (err == SL_OK) {
        err = sl_arena_attach(client->paths.shm_dir, 0, !client->read_only, &arena, why);
    }
    /* Check that both belong to the same life of the node. */
    if (err == SL_OK && sl_index_view_current(at->view, client->paths.shm_dir) != SL_OK) {
        sl_arena_close(&arena);
        err = sl_fail(why, SL_ERR_NOT_FOUND, "the index in %s is being replaced",
                      client->paths.shm_dir);
    }
    if (err == SL_OK) {
        atomic_store_explicit(&at->arenas[0], arena, memory_order_release);
        err = sl_client_leases_follow(client, at, why);
        if (err == SL_OK && !client->read_only && sl_client_is_ours(client)) {
            err = pins_open(client, at, why);
        }
    }
    if (err == SL_OK) {
        sl_client_stats_follow(client, at);
        return at;
    }
    if (err == SL_ERR_NOT_FOUND) {
        (void)sl_fail(why, SL_ERR_UNREACHABLE, "no node runs under the name '%s' (nothing in %s)",
                      client->instance, client->paths.shm_dir);
    }
    attachment_close(client, at);
    return NULL;
}

static sl_err attachment_add(struct sl_client *client, struct sl_error *why)
{
    if (client->attachment_count == SL_CLIENT_ATTACHMENTS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "views or drafts of %u earlier lives of the node are held: release them",
                       SL_CLIENT_ATTACHMENTS_MAX - 1);
    }
    if (client->next_number == UINT32_MAX) { /* the number would be that of an older one's pins */
        return sl_fail(why, SL_ERR_LIMIT, "the node was replaced %u times: open another client",
                       client->next_number);
    }
    struct sl_error reason = {0};
    struct sl_attachment *at = attachment_open(client, &reason);
    if (at == NULL) {
        if (why != NULL) {
            *why = reason;
        }
        return reason.code;
    }
    at->number = client->next_number++;
    at->next = client->attachments;
    client->attachments = at;
    client->attachment_count++;
    atomic_store_explicit(&client->current, at, memory_order_release);
    atomic_store_explicit(&client->any_old, at->next != NULL, memory_order_relaxed);
    return SL_OK;
}

/* A clock of a few milliseconds' resolution for every lookup: a tenth of the exact one's cost. */
static uint64_t coarse_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void gone_note(struct sl_client *client, bool gone, uint64_t now_ns)
{
    uint64_t never = 0;
    if (!gone) {
        atomic_store_explicit(&client->gone_ns, 0, memory_order_relaxed);
    } else {
        (void)atomic_compare_exchange_strong_explicit(&client->gone_ns, &never, now_ns,
                                                      memory_order_relaxed, memory_order_relaxed);
    }
}

bool sl_attachment_check_truncated(const struct sl_attachment *at)
{
    const struct sl_leases *leases = atomic_load_explicit(&at->leases, memory_order_acquire);
    bool is_cut = sl_index_view_is_cut(at->view) ||
                  (at->pins != NULL && sl_pins_is_cut(at->pins)) ||
                  (leases != NULL && sl_leases_is_cut(leases));
    for (uint32_t i = 0; i < SL_CLIENT_ARENAS_MAX && !is_cut; i++) {
        const struct sl_arena *arena = sl_client_arena(at, i);
        is_cut = arena != NULL && sl_arena_is_cut(arena);
    }
    return is_cut;
}

sl_err sl_client_fail_truncated(const struct sl_client *client, struct sl_error *why)
{
    return sl_fail(why, SL_ERR_CORRUPT,
                   "shared memory of node '%s' was cut short by another process: it is being "
                   "rebuilt",
                   client->instance);
}

static bool current_is_cut(const struct sl_client *client)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    return sl_attachment_is_cut(sl_client_attachment(client));
}

sl_err sl_client_check_node(struct sl_client *client, struct sl_error *why)
{
    (void)sl_client_reattach(client, false, NULL);
    if (__builtin_expect(sl_guard_cuts() != 0, 0) && current_is_cut(client)) {
        (void)sl_client_reattach(client, true, NULL);
        if (current_is_cut(client)) {
            return sl_client_fail_truncated(client, why);
        }
    }
    uint64_t gone_ns = atomic_load_explicit(&client->gone_ns, memory_order_relaxed);
    if (gone_ns == 0 || coarse_ns() < gone_ns + GONE_NS) { /* another thread may be a tick ahead */
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_UNREACHABLE, "node '%s' was stopped", client->instance);
}

bool sl_client_check_node_batch(struct sl_client *client, sl_err *codes, uint32_t count,
                                struct sl_error *why)
{
    sl_err err = sl_client_check_node(client, why);
    for (uint32_t i = 0; err != SL_OK && i < count; i++) {
        codes[i] = err;
    }
    return err == SL_OK;
}

/* Compares the node's files with the mapped ones. */
static sl_err node_follow(struct sl_client *client, uint64_t now_ns, struct sl_error *why)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct sl_attachment *at = sl_client_attachment(client);
    sl_err err = sl_index_view_current(at->view, client->paths.shm_dir);
    gone_note(client, err == SL_ERR_NOT_FOUND, now_ns);
    if (err == SL_ERR_NOT_FOUND) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "node '%s' was stopped", client->instance);
    }
    if (err == SL_OK &&
        (client->leases || atomic_load_explicit(&client->holds, memory_order_relaxed))) {
        pthread_mutex_lock(&client->lock);
        err = sl_client_leases_follow(client, at, why);
        pthread_mutex_unlock(&client->lock);
    }
    if (err == SL_OK &&
        now_ns >= atomic_load_explicit(&at->figures_again_ns, memory_order_relaxed)) {
        sl_client_stats_poll(client, at, now_ns);
    }
    if (err == SL_OK || err == SL_ERR_VERSION) {
        return err;
    }
    pthread_mutex_lock(&client->lock);
    err = SL_OK;
    if (at == sl_client_attachment(client)) { /* no other thread was faster */
        err = attachment_add(client, why);
    }
    pthread_mutex_unlock(&client->lock);
    return err;
}

sl_err sl_client_reattach(struct sl_client *client, bool force, struct sl_error *why)
{
    uint64_t now_ns = coarse_ns();
    uint64_t checked_ns = atomic_load_explicit(&client->checked_ns, memory_order_relaxed);
    if (!force && now_ns - checked_ns < CHECK_EVERY_NS) {
        return SL_OK;
    }
    atomic_store_explicit(&client->checked_ns, now_ns, memory_order_relaxed);
    sl_err err = node_follow(client, now_ns, why);
    sl_client_sweep(client);
    return err;
}

/* ---- unmapping ---- */

/* Under the lock, for an attachment that is not current: other threads can only find it by the
 * number of a pin, under the lock. */
static bool is_unused(struct sl_attachment *at)
{
    if (at->retired == 0) {
        at->retired = sl_readers_retire();
    }
    /* In this order: a section may have added a hold or a pin before it ended. */
    return at->retired != 0 && sl_readers_passed(at->retired) &&
           atomic_load_explicit(&at->holds, memory_order_acquire) == 0 && !sl_pins_any(at->pins);
}

void sl_client_sweep(struct sl_client *client)
{
    struct sl_attachment *gone = NULL;
    if (!atomic_load_explicit(&client->any_old, memory_order_relaxed)) {
        return;
    }
    pthread_mutex_lock(&client->lock);
    struct sl_attachment **link = &client->attachments->next; /* the first is the current one */
    while (*link != NULL) {
        struct sl_attachment *at = *link;
        if (!is_unused(at)) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        at->next = gone;
        gone = at;
        client->attachment_count--;
    }
    atomic_store_explicit(&client->any_old, client->attachments->next != NULL,
                          memory_order_relaxed);
    pthread_mutex_unlock(&client->lock);
    while (gone != NULL) { /* takes a while, and may wait for a GPU */
        struct sl_attachment *at = gone;
        gone = at->next;
        attachment_close(client, at);
    }
}

void *sl_client_bytes(struct sl_client *client, struct sl_attachment *at, uint32_t arena,
                      uint64_t offset_bytes, uint64_t length_bytes)
{
    if (arena >= SL_CLIENT_ARENAS_MAX) {
        return NULL;
    }
    struct sl_arena *mapped = atomic_load_explicit(&at->arenas[arena], memory_order_acquire);
    if (mapped == NULL) {
        pthread_mutex_lock(&client->lock);
        mapped = atomic_load_explicit(&at->arenas[arena], memory_order_acquire);
        if (mapped == NULL && sl_arena_attach(client->paths.shm_dir, arena, !client->read_only,
                                              &mapped, NULL) == SL_OK) {
            atomic_store_explicit(&at->arenas[arena], mapped, memory_order_release);
        }
        pthread_mutex_unlock(&client->lock);
    }
    return mapped == NULL ? NULL : sl_arena_map(mapped, offset_bytes, length_bytes);
}

const struct sl_arena *sl_client_arena(const struct sl_attachment *at, uint32_t arena)
{
    return arena >= SL_CLIENT_ARENAS_MAX
               ? NULL
               : atomic_load_explicit(&at->arenas[arena], memory_order_acquire);
}

/* ---- open, close ---- */

static sl_err settings_load(struct sl_client *client, const struct sl_client_options *options,
                            struct sl_error *why)
{
    sl_err err = sl_config_create(&client->config, why);
    if (err == SL_OK) {
        err = sl_config_load(client->config, options->config, 0, NULL, NULL, why);
    }
    for (const char *const *at = options->settings; err == SL_OK && at != NULL && *at != NULL;
         at++) {
        const char *equals = strchr(*at, '=');
        char name[64];
        if (equals == NULL || (size_t)(equals - *at) >= sizeof name) {
            return sl_fail(why, SL_ERR_CONFIG, "setting '%.64s' is not name=value", *at);
        }
        memcpy(name, *at, (size_t)(equals - *at));
        name[equals - *at] = '\0';
        err = sl_config_set(client->config, name, equals + 1, "settings", why);
    }
    if (err == SL_OK && options->instance != NULL) {
        err = sl_config_set(client->config, "instance", options->instance, "instance", why);
    }
    if (err == SL_OK) {
        err = sl_paths_from(client->config, &client->paths, why);
    }
    if (err != SL_OK) {
        return err;
    }
    (void)snprintf(client->instance, sizeof client->instance, "%s",
                   sl_config_text(client->config, SL_SET_instance));
    const char *level = sl_config_text(client->config, SL_SET_log_level);
    client->debugs = strcmp(level, "debug") == 0 || strcmp(level, "trace") == 0;
    client->op_timeout_ns = sl_config_u64(client->config, SL_SET_op_timeout);
    client->ahead_useful_ns = sl_config_u64(client->config, SL_SET_reservation_ttl) / 2;
    client->call_retry_ns = sl_config_u64(client->config, SL_SET_call_retry);
    client->message_bytes_max = sl_config_u64(client->config, SL_SET_message_bytes_max);
    return SL_OK;
}

static sl_err talk_open(struct sl_client *client, struct sl_error *why)
{
    client->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->kick_fd < 0) {
        return sl_fail_os(why, errno, "eventfd");
    }
    client->orphans = calloc(SL_CLIENT_ORPHANS_MAX, sizeof *client->orphans);
    if (client->orphans == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "client: %u claims", SL_CLIENT_ORPHANS_MAX);
    }
    client->next_seq = sl_client_random();
    client->next_op_id = sl_client_random() & ~UINT64_C(0xffffffff);
    client->next_op_id |= UINT64_C(1) << 32; /* never 0 */
    sl_err err = sl_codec_create(client->message_bytes_max, &client->codec, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_mailbox_options options = {.runtime_dir = client->paths.runtime_dir,
                                         .name = client->name};
    sl_mailbox_options_from(client->config, &options);
    return sl_mailbox_open(&options, &client->mailbox, why);
}

static bool node_starts(const struct sl_client *client)
{
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/registrar.sock", client->paths.runtime_dir);
    return access(path, F_OK) == 0;
}

/* A starting node has its socket before its memory, and one whose memory was truncated is creating
 * it again: both are worth waiting for. */
static bool attach_may_come(const struct sl_client *client, sl_err err)
{
    return err == SL_ERR_CORRUPT || (err == SL_ERR_UNREACHABLE && node_starts(client));
}

static sl_err attach_until(struct sl_client *client, uint64_t deadline_ns, struct sl_error *why)
{
    for (;;) {
        sl_err err = attachment_add(client, why);
        if (err == SL_OK || !attach_may_come(client, err) ||
            sl_clock_monotonic_ns() >= deadline_ns) {
            return err;
        }
        sl_client_sleep(ATTACH_RETRY_NS);
    }
}

/* Memory that was complete may be truncated before the registrar is greeted. */
static sl_err greet_until(struct sl_client *client, uint64_t deadline_ns, struct sl_error *why)
{
    for (;;) {
        sl_err err = sl_client_hello(client, deadline_ns, why);
        if (err == SL_OK || !attach_may_come(client, err) ||
            sl_clock_monotonic_ns() >= deadline_ns) {
            return err;
        }
        sl_client_sleep(ATTACH_RETRY_NS);
    }
}

/* Detects a fork without a system call per call. NULL: not supported by the system. */
static const volatile unsigned char *ours_page(void)
{
    unsigned char *page =
        mmap(NULL, SL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return NULL;
    }
    if (madvise(page, SL_PAGE_BYTES, MADV_WIPEONFORK) != 0) {
        (void)munmap(page, SL_PAGE_BYTES);
        return NULL;
    }
    *page = 1;
    return page;
}

bool sl_client_is_ours(const struct sl_client *client)
{
    return client->ours != NULL ? *client->ours != 0 : (uint32_t)getpid() == client->self.pid;
}

static struct sl_client *client_new(void)
{
    struct sl_client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        return NULL;
    }
    client->kick_fd = -1;
    client->self = sl_proc_id_client();
    client->ours = ours_page();
    sl_client_name(client->self, client->name);
    pthread_mutex_init(&client->lock, NULL);
    sl_turn_init(&client->contributing);
    atomic_init(&client->contribute_again_ns, SL_NEVER_NS);
    return client;
}

sl_err sl_client_open(const struct sl_client_options *options, struct sl_client **out,
                      struct sl_error *why)
{
    if (options == NULL || out == NULL || options->api_version != SLUICE_API_VERSION) {
        return sl_fail(why, options != NULL && out != NULL ? SL_ERR_VERSION : SL_ERR_INVALID,
                       "client options: api_version must be %d", SLUICE_API_VERSION);
    }
    struct sl_client *client = client_new();
    if (client == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "client: %zu bytes", sizeof *client);
    }
    struct sl_error own = {0};
    why = why != NULL ? why : &own;
    *why = (struct sl_error){0};
    client->read_only = options->read_only;
    client->leases = options->leases;
    uint64_t deadline_ns =
        sl_deadline_ns(sl_clock_monotonic_ns(),
                       options->timeout_ns == 0 ? ATTACH_NS_DEFAULT : options->timeout_ns);
    sl_err err = settings_load(client, options, why);
    if (err == SL_OK) {
        err = attach_until(client, deadline_ns, why);
    }
    if (err == SL_OK && !client->read_only) {
        err = talk_open(client, why);
        if (err == SL_OK) {
            err = greet_until(client, deadline_ns, why);
        }
    }
    if (err != SL_OK) {
        sl_client_close(&client);
        bool full = why->os_code == EMFILE || why->os_code == ENFILE;
        return full ? why->code = SL_ERR_LIMIT : err;
    }
    *out = client;
    return SL_OK;
}

/* Sent once: if it is lost, the registrar reclaims the grants after their time. */
static void grants_give_back(struct sl_client *client)
{
    struct sl_msg msg = {.type = SL_MSG_ABORT};
    client->orphan_count +=
        sl_prealloc_expire(&client->ahead, SL_NEVER_NS, &client->orphans[client->orphan_count],
                           SL_CLIENT_ORPHANS_MAX - client->orphan_count);
    if (client->orphan_count > 0) {
        msg.body.abort.items.at = client->orphans;
        msg.body.abort.items.count = client->orphan_count;
        sl_client_send(client, "registrar", &msg, SL_NS_PER_S);
    }
}

/* The client accesses nothing through the attachment any more. The registrar then frees the
 * client's slot, even if the process lives on. A later registrar finds client and file by
 * itself. */
static void pins_end(const struct sl_client *client, struct sl_attachment *at)
{
    bool is_known = client->greeted_generation != 0 && client->greeted_attachment == at->number &&
                    sl_index_view_current(at->view, client->paths.shm_dir) == SL_OK;
    if (is_known && sl_client_is_ours(client)) {
        sl_pins_end(&at->pins);
    } /* otherwise attachment_close removes the file, or leaves it to the parent */
}

void sl_client_close(struct sl_client **client)
{
    struct sl_client *gone = client == NULL ? NULL : *client;
    if (gone == NULL) {
        return;
    }
    if (gone->mailbox != NULL && sl_client_is_ours(gone)) {
        sl_client_contributions_end(gone);
        sl_client_deferred_settle(gone);
        grants_give_back(gone);
    }
    if (sl_client_is_ours(gone)) { /* otherwise its threads and lanes belong to the parent */
        sl_mailbox_close(&gone->mailbox);
        sl_descriptors_stop(&gone->files);
    }
    sl_codec_destroy(&gone->codec);
    while (gone->attachments != NULL) {
        struct sl_attachment *at = gone->attachments;
        gone->attachments = at->next;
        /* Memory that a GPU may still access stays pinned and mapped until the process ends. */
        if (!sl_client_deferred_in(gone, at)) {
            pins_end(gone, at);
            attachment_close(gone, at);
        }
    }
    sl_client_deferred_free(gone);
    sl_client_ends_close(gone);
    if (gone->kick_fd >= 0) {
        (void)close(gone->kick_fd);
    }
    sl_log_close(&gone->log);
    sl_config_destroy(&gone->config);
    pthread_mutex_destroy(&gone->lock);
    sl_turn_fini(&gone->contributing, sl_client_is_ours(gone));
    if (gone->ours != NULL) {
        (void)munmap((void *)(uintptr_t)gone->ours, SL_PAGE_BYTES);
    }
    free(gone->orphans);
    free(gone);
    *client = NULL;
}

void sl_client_tenant(struct sl_client *client, const char *tenant)
{
    (void)snprintf(client->tenant, sizeof client->tenant, "%s", tenant);
    client->has_tenant = client->tenant[0] != '\0';
}

const char *sl_client_instance(const struct sl_client *client)
{
    return client->instance;
}

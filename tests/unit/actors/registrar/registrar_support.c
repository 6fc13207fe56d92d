/* tests/unit/actors/registrar/registrar_support.c - see registrar_support.h. */
#include "tests/unit/actors/registrar/registrar_support.h"

static uint64_t disk_offset; /* of the next value; tests run in processes of their own */

struct sl_proc_id proc_of(uint32_t pid)
{
    return (struct sl_proc_id){.pid = pid, .start_time = 1000 + pid};
}

static void node_view(struct node *node)
{
    struct sl_error why = {0};
    ck_assert_msg(sl_index_view_open(node->fake.paths.shm_dir, &node->view, &why) == SL_OK, "%s",
                  why.text);
}

struct node *node_start(const char *const *settings)
{
    static const char *const standard[] = {"memory",
                                           "4MiB",
                                           "memory_chunk",
                                           "4MiB",
                                           "index_memory",
                                           "4MiB",
                                           "reservations_max",
                                           "4096",
                                           "clients_max",
                                           "64",
                                           "ghosts_max",
                                           "1024",
                                           "disk",
                                           "0",
                                           NULL};
    struct sl_error why = {0};
    struct node *node = calloc(1, sizeof(*node));
    ck_assert_ptr_nonnull(node);
    fake_open(&node->fake, &sl_registrar_actor, standard);
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i += 2) {
        fake_set(&node->fake, settings[i], settings[i + 1]);
    }
    ck_assert_msg(fake_start(&node->fake, &why) == SL_OK, "%s", why.text);
    node_view(node);
    return node;
}

void node_end(struct node *node)
{
    sl_index_view_close(&node->view);
    fake_close(&node->fake);
    free(node);
}

void node_restart(struct node *node)
{
    struct sl_error why = {0};
    fake_stop(&node->fake);
    ck_assert_msg(fake_start(&node->fake, &why) == SL_OK, "%s", why.text);
}

sl_err node_hello_pins(struct node *node, const char *name, const char *role, uint32_t pid,
                       const char *segment)
{
    struct sl_msg msg = {.type = SL_MSG_HELLO}, reply;
    struct sl_proc_id proc = proc_of(pid);
    bool there = false;
    for (uint32_t i = 0; i < node->fake.living_count; i++) {
        there = there || sl_proc_id_equal(node->fake.living[i], proc);
    }
    if (!there) {
        fake_process_add(&node->fake, proc);
    }
    msg.body.hello = (struct sl_body_hello){.role = sl_text_of(role),
                                            .name = sl_text_of(name),
                                            .pid = pid,
                                            .start_time = proc.start_time,
                                            .segment = sl_text_of(segment)};
    fake_give(&node->fake, name, &msg);
    ck_assert(fake_take_reply(&node->fake, name, msg.seq, &reply));
    return reply.code;
}

sl_err node_hello(struct node *node, const char *name, const char *role, uint32_t pid)
{
    return node_hello_pins(node, name, role, pid, "");
}

void node_client(struct node *node, const char *name, uint32_t pid)
{
    ck_assert_int_eq(node_hello(node, name, "client", pid), SL_OK);
}

bool node_reserved(struct node *node, const struct reserve_ask *ask, struct grants *out)
{
    struct sl_msg reply;
    if (!fake_take_reply(&node->fake, ask->sender, ask->seq, &reply)) {
        return false;
    }
    out->code = reply.code;
    out->count = (uint32_t)reply.body.reserve_reply.items.count;
    ck_assert_uint_le(out->count, NODE_ITEMS_MAX);
    for (uint32_t i = 0; i < out->count; i++) {
        out->at[i] = reply.body.reserve_reply.items.at[i];
    }
    return true;
}

bool node_reserve(struct node *node, struct reserve_ask *ask, struct grants *out)
{
    static struct sl_item_want items[NODE_ITEMS_MAX];
    struct sl_item_group group = {.part_count = ask->part_count,
                                  .transient_ns = ask->transient_ns,
                                  .parent_hash = ask->parent_hash,
                                  .hint = ask->hint,
                                  .priority = ask->priority,
                                  .keep_ns = ask->keep_ns};
    struct sl_msg msg = {
        .type = SL_MSG_RESERVE, .op_id = ask->op_id, .seq = ask->seq, .budget_ns = ask->budget_ns};
    for (uint32_t i = 0; i < ask->count; i++) {
        const struct want *want = &ask->wants[i];
        items[i] = (struct sl_item_want){
            .key = sl_text_of(want->key),
            .length_bytes = want->length,
            .group = want->group,
            .part_index = want->part,
            .writer = sl_text_of(want->writer != NULL ? want->writer : ""),
            .bundle = sl_text_of(want->bundle != NULL ? want->bundle : ""),
        };
    }
    msg.body.reserve.wait = ask->wait;
    msg.body.reserve.ttl_ns = ask->ttl_ns;
    msg.body.reserve.hold_id = ask->hold_id;
    msg.body.reserve.hold_ns = ask->hold_ns;
    msg.body.reserve.hard_pin = ask->hard_pin;
    msg.body.reserve.soft_pin_ns = ask->soft_pin_ns;
    msg.body.reserve.replace = ask->replace;
    msg.body.reserve.draft = ask->draft;
    struct sl_text names[SL_COUNT(ask->contributions)];
    for (uint32_t i = 0; i < ask->contribution_count; i++) {
        names[i] = sl_text_of(ask->contributions[i]);
    }
    msg.body.reserve.contributions = (struct sl_texts){names, ask->contribution_count};
    msg.body.reserve.items.at = items;
    msg.body.reserve.items.count = ask->count;
    if (ask->group_key != NULL) {
        group.key = sl_text_of(ask->group_key);
        group.parent_hash = ask->parent_hash;
        group.hint = ask->hint;
        msg.body.reserve.groups.at = &group;
        msg.body.reserve.groups.count = 1;
    }
    fake_give(&node->fake, ask->sender, &msg);
    ask->seq = msg.seq;
    return node_reserved(node, ask, out);
}

struct sl_item_grant node_grant(struct node *node, const char *sender, const char *key,
                                uint64_t length)
{
    static struct grants grants;
    struct want want = {.key = key, .length = length};
    struct reserve_ask ask = {.sender = sender, .wants = &want, .count = 1};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_int_eq(grants.code, SL_OK);
    ck_assert_msg(grants.at[0].code == SL_OK, "%s: %s", key,
                  sl_err_name((sl_err)grants.at[0].code));
    return grants.at[0];
}

struct sl_digest digest_of_key(const char *key)
{
    return sl_digest_of(key, strlen(key));
}

void node_commit_all(struct node *node, const char *sender, const char *const *keys,
                     const struct sl_item_grant *grants, uint32_t count, bool tail_first,
                     sl_err *codes)
{
    static struct sl_item_claim claims[NODE_ITEMS_MAX];
    struct sl_msg msg = {.type = SL_MSG_COMMIT}, reply;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_digest digest = digest_of_key(keys[i]);
        claims[i] = (struct sl_item_claim){.ref = grants[i].ref,
                                           .generation = grants[i].generation,
                                           .digest_low = digest.low,
                                           .digest_high = digest.high};
    }
    msg.body.commit.tail_first = tail_first;
    msg.body.commit.items.at = claims;
    msg.body.commit.items.count = count;
    fake_give(&node->fake, sender, &msg);
    ck_assert(fake_take_reply(&node->fake, sender, msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(reply.body.commit_reply.codes.count, count);
    for (uint32_t i = 0; i < count; i++) {
        if (codes != NULL) {
            codes[i] = (sl_err)reply.body.commit_reply.codes.at[i];
        } else {
            ck_assert_uint_eq(reply.body.commit_reply.codes.at[i], SL_OK);
        }
    }
}

sl_err node_commit(struct node *node, const char *sender, const char *key,
                   const struct sl_item_grant *grant)
{
    sl_err code;
    node_commit_all(node, sender, &key, grant, 1, false, &code);
    return code;
}

sl_err node_abort(struct node *node, const char *sender, const struct sl_item_grant *grant)
{
    struct sl_item_claim claim = {.ref = grant->ref, .generation = grant->generation};
    struct sl_msg msg = {.type = SL_MSG_ABORT}, reply;
    msg.body.abort.items.at = &claim;
    msg.body.abort.items.count = 1;
    fake_give(&node->fake, sender, &msg);
    ck_assert(fake_take_reply(&node->fake, sender, msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    return (sl_err)reply.body.abort_reply.codes.at[0];
}

void node_abort_op(struct node *node, const char *sender, uint64_t op_id)
{
    struct sl_msg msg = {.type = SL_MSG_ABORT, .op_id = op_id}, reply;
    fake_give(&node->fake, sender, &msg);
    ck_assert(fake_take_reply(&node->fake, sender, msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(reply.body.abort_reply.codes.count, 0);
}

void node_put(struct node *node, const char *sender, const char *key, uint64_t length)
{
    struct sl_item_grant grant = node_grant(node, sender, key, length);
    ck_assert_int_eq(node_commit(node, sender, key, &grant), SL_OK);
}

void node_put_block(struct node *node, const char *sender, const char *group, uint32_t count,
                    uint64_t length, uint64_t transient_ns)
{
    static struct grants grants;
    static char names[512][64];
    struct want wants[512];
    const char *keys[512];
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "%s/%u", group, i);
        keys[i] = names[i];
        wants[i] = (struct want){.key = names[i], .length = length, .group = 1, .part = i};
    }
    struct reserve_ask ask = {.sender = sender,
                              .op_id = 7,
                              .wants = wants,
                              .count = count,
                              .group_key = group,
                              .part_count = count,
                              .transient_ns = transient_ns};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_int_eq(grants.code, SL_OK);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(grants.at[i].code, SL_OK);
    }
    node_commit_all(node, sender, keys, grants.at, count, false, NULL);
}

void node_put_hinted(struct node *node, const char *sender, const char *key, uint64_t parent_hash,
                     uint64_t length, const struct sl_packed_hints *said)
{
    static struct grants grants;
    char part[64];
    (void)snprintf(part, sizeof(part), "%s/0", key);
    const char *keys[] = {part};
    struct want want = {.key = part, .length = length, .group = 1};
    struct reserve_ask ask = {.sender = sender,
                              .op_id = 7,
                              .wants = &want,
                              .count = 1,
                              .group_key = key,
                              .part_count = 1,
                              .parent_hash = parent_hash,
                              .hint = said->session,
                              .priority = said->priority,
                              .keep_ns = said->keep_ns};
    ck_assert(node_reserve(node, &ask, &grants));
    ck_assert_uint_eq(grants.at[0].code, SL_OK);
    node_commit_all(node, sender, keys, grants.at, 1, false, NULL);
}

sl_err node_remove(struct node *node, const char *sender, const char *key)
{
    struct sl_text text = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_REMOVE}, reply;
    msg.body.remove.keys = (struct sl_texts){.at = &text, .count = 1};
    fake_give(&node->fake, sender, &msg);
    if (!fake_take_reply(&node->fake, sender, msg.seq, &reply)) {
        return SL_ERR_INCOMPLETE; /* it waits */
    }
    return reply.code != SL_OK ? reply.code : (sl_err)reply.body.remove_reply.codes.at[0];
}

bool node_entry(struct node *node, const char *key, struct sl_entry *out)
{
    return sl_index_find(node->view, key, (uint32_t)strlen(key), out) == SL_OK;
}

bool node_is_visible(struct node *node, const char *key)
{
    struct sl_entry entry;
    return node_entry(node, key, &entry);
}

uint64_t node_metric(struct node *node, const char *name)
{
    fake_advance(&node->fake, 1); /* gauges are set by ticks */
    node->fake.wake_ns = node->fake.env.now_ns;
    fake_advance(&node->fake, 1);
    return sl_metric_get(node->fake.env.metrics, sl_metric_define(node->fake.env.metrics, name));
}

/* ---- tierer ---- */

static char tierer_name[32] = "tierer.0";
static char tierer_store[17]; /* name of its disk; empty: none */

void tierer_select(uint32_t number, const char *store)
{
    (void)snprintf(tierer_name, sizeof(tierer_name), "tierer.%u", number);
    (void)snprintf(tierer_store, sizeof(tierer_store), "%s", store);
}

/* Unanswered requests are sent again under the same number: like a tierer, the test answers each
 * once. */
static bool tierer_knows(uint64_t seq)
{
    static uint64_t known[65536];
    static uint32_t count;
    for (uint32_t i = 0; i < count; i++) {
        if (known[i] == seq) {
            return true;
        }
    }
    ck_assert_uint_lt(count, SL_COUNT(known));
    known[count++] = seq;
    return false;
}

void tierer_arrive(struct node *node, uint32_t pid)
{
    ck_assert_int_eq(node_hello(node, tierer_name, "tierer", pid), SL_OK);
}

void tierer_fenced(struct node *node)
{
    struct sl_msg fence, ok = {.code = SL_OK};
    ck_assert(fake_take(&node->fake, tierer_name, SL_MSG_FENCE, &fence));
    ck_assert_uint_eq(fence.op_id, 0);
    ck_assert_uint_eq(fence.body.fence.items.count, 0);
    fake_answer(&node->fake, tierer_name, &fence, &ok);
}

void tierer_found(struct node *node, const struct found *items, uint32_t count, bool first,
                  bool last, sl_err *codes)
{
    struct sl_item_found found[64];
    struct sl_msg msg = {.type = SL_MSG_DISK_FOUND}, reply, fence, ok = {.code = SL_OK};
    ck_assert_uint_le(count, SL_COUNT(found));
    if (first && fake_take(&node->fake, tierer_name, SL_MSG_FENCE, &fence)) {
        fake_answer(&node->fake, tierer_name, &fence, &ok);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sl_digest digest =
            digest_of_key(items[i].digest_key != NULL ? items[i].digest_key : items[i].key);
        found[i] = (struct sl_item_found){
            .key = sl_text_of(items[i].key),
            .group_key = sl_text_of(items[i].group != NULL ? items[i].group : ""),
            .part_index = items[i].part,
            .part_count = items[i].parts,
            .length_bytes = items[i].length,
            .digest_low = digest.low,
            .digest_high = digest.high,
            .segment = items[i].segment,
            .disk_offset_bytes = items[i].offset,
        };
    }
    msg.body.disk_found.first = first;
    msg.body.disk_found.last = last;
    msg.body.disk_found.items.at = found;
    msg.body.disk_found.items.count = count;
    msg.body.disk_found.store = (struct sl_bytes){tierer_store, tierer_store[0] != '\0' ? 16 : 0};
    fake_give(&node->fake, tierer_name, &msg);
    ck_assert(fake_take_reply(&node->fake, tierer_name, msg.seq, &reply));
    for (uint32_t i = 0; i < 2 && first && reply.code == SL_ERR_BUSY; i++) {
        if (fake_take(&node->fake, tierer_name, SL_MSG_FENCE, &fence)) { /* it has served */
            fake_answer(&node->fake, tierer_name, &fence, &ok);
        } else { /* leftover marks of an unfinished scan are cleared first */
            fake_advance(&node->fake, SL_NS_PER_MS);
        }
        msg.seq = 0;
        fake_give(&node->fake, tierer_name, &msg);
        ck_assert(fake_take_reply(&node->fake, tierer_name, msg.seq, &reply));
    }
    ck_assert_int_eq(reply.code, SL_OK);
    for (uint32_t i = 0; codes != NULL && i < count; i++) {
        codes[i] = (sl_err)reply.body.disk_found_reply.codes.at[i];
    }
}

void tierer_ready(struct node *node)
{
    tierer_found(node, NULL, 0, true, true, NULL);
}

uint32_t tierer_write(struct node *node, uint32_t segment, sl_err code)
{
    struct sl_item_spilled spilled[64];
    struct sl_msg request;
    uint32_t total = 0;
    while (fake_take(&node->fake, tierer_name, SL_MSG_DISK_WRITE, &request)) {
        if (tierer_knows(request.seq)) {
            continue;
        }
        uint32_t count = (uint32_t)request.body.disk_write.items.count;
        struct sl_msg reply = {.code = SL_OK};
        ck_assert_uint_le(count, SL_COUNT(spilled));
        for (uint32_t i = 0; i < count; i++) {
            spilled[i] = (struct sl_item_spilled){
                .code = code,
                .generation = request.body.disk_write.items.at[i].generation,
                .segment = segment,
                .disk_offset_bytes = disk_offset};
            disk_offset += 4096;
        }
        reply.body.disk_write_reply.items.at = spilled;
        reply.body.disk_write_reply.items.count = count;
        fake_answer(&node->fake, tierer_name, &request, &reply);
        total += count;
        if (code != SL_OK) {
            break; /* otherwise it would be resent forever */
        }
    }
    return total;
}

static uint32_t tierer_codes(struct node *node, uint32_t type, sl_err code)
{
    static uint64_t codes[SL_BATCH_MAX];
    struct sl_msg request;
    uint32_t total = 0;
    while (fake_take(&node->fake, tierer_name, type, &request)) {
        if (tierer_knows(request.seq)) {
            continue;
        }
        bool reads = request.type == SL_MSG_DISK_READ;
        uint32_t count = (uint32_t)(reads ? request.body.disk_read.items.count
                                          : request.body.disk_forget.items.count);
        struct sl_msg reply = {.code = SL_OK};
        for (uint32_t i = 0; i < count; i++) {
            codes[i] = (uint64_t)code;
        }
        struct sl_u64s list = {.at = codes, .count = count};
        if (reads) {
            reply.body.disk_read_reply.codes = list;
        } else {
            reply.body.disk_forget_reply.codes = list;
        }
        fake_answer(&node->fake, tierer_name, &request, &reply);
        total += count;
    }
    return total;
}

uint32_t tierer_read(struct node *node, sl_err code)
{
    return tierer_codes(node, SL_MSG_DISK_READ, code);
}

uint32_t tierer_prefetch(struct node *node, sl_err code)
{
    return tierer_codes(node, SL_MSG_DISK_READ | FAKE_PREFETCH, code);
}

uint32_t tierer_forget(struct node *node, sl_err code)
{
    return tierer_codes(node, SL_MSG_DISK_FORGET, code);
}

uint64_t tierer_reclaim(struct node *node, uint32_t segment, bool gone)
{
    struct sl_msg msg = {.type = SL_MSG_DISK_RECLAIM};
    msg.body.disk_reclaim.segment = segment;
    msg.body.disk_reclaim.gone = gone;
    fake_give(&node->fake, tierer_name, &msg);
    return msg.seq;
}

bool tierer_reclaimed(struct node *node, uint32_t segment, uint64_t seq)
{
    struct sl_msg reply;
    if (!fake_take_reply(&node->fake, tierer_name, seq, &reply)) {
        return false;
    }
    ck_assert_int_eq(reply.code, SL_OK);
    seq = tierer_reclaim(node, segment, true);
    while (!fake_take_reply(&node->fake, tierer_name, seq, &reply)) {
        fake_advance(&node->fake, SL_NS_PER_MS);
    }
    ck_assert_int_eq(reply.code, SL_OK);
    return true;
}

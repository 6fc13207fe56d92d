/* tests/support/fabric_end.c - see fabric_end.h. */
#include "tests/support/fabric_end.h"

#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

static void on_done(void *context, const struct sl_fabric_done *done)
{
    struct fabric_end *end = context;
    struct end_done *kept = &end->dones[end->done_count++ % END_DONES_MAX];
    *kept = (struct end_done){.cookie = done->cookie,
                              .moved_bytes = done->moved_bytes,
                              .code = done->code,
                              .piece_count = done->piece_count};
    memcpy(kept->pieces, done->pieces, SL_MIN(done->piece_count, SL_COUNT(kept->pieces)));
}

static void on_registered(void *context, uint32_t memory, uint32_t region_index,
                          const struct sl_error *why)
{
    struct fabric_end *end = context;
    ck_assert_uint_eq(memory, end->memory);
    end->registered = why->code == SL_OK;
    end->refused = why->code != SL_OK;
    end->register_region = region_index;
}

static void on_address(void *context, uint32_t peer, const void *blob, uint32_t length_bytes)
{
    struct fabric_end *end = context;
    (void)peer;
    memcpy(end->address, blob, length_bytes);
    end->address_bytes = length_bytes;
}

static void on_link(void *context, uint32_t peer, enum sl_fabric_link link,
                    const struct sl_error *why)
{
    struct fabric_end *end = context;
    (void)peer;
    end->link = link;
    end->ups += link == SL_FABRIC_UP;
    end->downs += link == SL_FABRIC_DOWN;
    if (link == SL_FABRIC_DOWN) {
        memcpy(end->link_why, why->text, sizeof(end->link_why));
    }
}

static void on_grant_ended(void *context, uint32_t grant)
{
    struct fabric_end *end = context;
    end->grants_ended++;
    end->grant_last = grant;
}

static void on_granted(void *context, uint32_t grant, const void *key, uint32_t key_bytes,
                       const struct sl_error *why)
{
    struct fabric_end *end = context;
    (void)grant;
    if (key_bytes == 0) {
        end->grants_failed++;
        end->grant_why = *why;
        return;
    }
    end->granted++;
    end->key_bytes = key_bytes;
    memcpy(end->key, key, key_bytes);
}

void end_options(struct fabric_end *end, struct sl_fabric_options *options, const char *kind)
{
    sl_fabric_options_init(options, kind);
    options->seed = 1;
    options->peers_max = 4;
    options->events = (struct sl_fabric_events){
        .context = end,
        .done = on_done,
        .registered = on_registered,
        .address = on_address,
        .link = on_link,
        .granted = on_granted,
        .grant_ended = on_grant_ended,
    };
}

sl_err end_open(struct fabric_end *end, const struct sl_fabric_options *options,
                uint64_t length_bytes, uint64_t chunk_bytes, struct sl_error *why)
{
    sl_err err = sl_fabric_open(options, &end->fabric, why);
    if (err == SL_ERR_UNSUPPORTED) {
        return err;
    }
    ck_assert_msg(err == SL_OK, "%s", why->text);
    err = sl_fabric_peer_add(end->fabric, &end->peer, why);
    ck_assert_msg(err == SL_OK, "%s", why->text);
    if (length_bytes > 0) {
        end->length_bytes = length_bytes;
        end->bytes =
            mmap(NULL, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert(end->bytes != MAP_FAILED);
        struct sl_fabric_memory memory = {
            .at = end->bytes,
            .length_bytes = length_bytes,
            .chunk_bytes = end->stride_bytes != 0 ? 0
                           : chunk_bytes == 0     ? length_bytes
                                                  : chunk_bytes,
            .stride_bytes = end->stride_bytes,
            .unread = end->unread,
        };
        err = sl_fabric_memory_add(end->fabric, &memory, &end->memory, why);
        ck_assert_msg(err == SL_OK, "%s", why->text);
    }
    return SL_OK;
}

void end_close(struct fabric_end *end)
{
    sl_fabric_close(&end->fabric);
    if (end->bytes != NULL) {
        munmap(end->bytes, end->length_bytes);
        end->bytes = NULL;
    }
}

uint64_t end_now(const struct fabric_end *end)
{
    return end->now_ns != NULL ? *end->now_ns : sl_clock_monotonic_ns();
}

void end_step(struct fabric_end *end, int wait_ms)
{
    uint64_t now_ns = end_now(end), at_ns = sl_fabric_wake_at(end->fabric);
    uint64_t until_ms = at_ns <= now_ns ? 0 : (at_ns - now_ns) / SL_NS_PER_MS + 1;
    if (wait_ms > 0 && until_ms > 0) {
        struct pollfd ready = {.fd = sl_fabric_fd(end->fabric), .events = POLLIN};
        (void)poll(&ready, 1, (int)SL_MIN((uint64_t)wait_ms, until_ms));
    }
    sl_fabric_step(end->fabric, end_now(end));
}

static void deliver(struct fabric_end *from, struct fabric_end *to)
{
    struct sl_error why = {0};
    if (from->address_bytes == 0 || to->fabric == NULL) {
        return;
    }
    uint32_t length_bytes = from->address_bytes;
    from->address_bytes = 0;
    sl_err err = sl_fabric_peer_address(to->fabric, to->peer, from->address, length_bytes, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
}

void pair_step(struct fabric_end *a, struct fabric_end *b)
{
    struct fabric_end *ends[2] = {a, b};
    struct pollfd ready[2];
    nfds_t count = 0;
    bool due = false;
    for (int i = 0; i < 2; i++) {
        if (ends[i]->fabric != NULL) {
            due |= sl_fabric_wake_at(ends[i]->fabric) <= end_now(ends[i]);
            ready[count++] = (struct pollfd){.fd = sl_fabric_fd(ends[i]->fabric), .events = POLLIN};
        }
    }
    if (!due) {
        (void)poll(ready, count, 5);
    }
    for (int i = 0; i < 2; i++) {
        if (ends[i]->fabric != NULL) {
            sl_fabric_step(ends[i]->fabric, end_now(ends[i]));
        }
    }
    deliver(a, b);
    deliver(b, a);
}

sl_err fabric_memory_drop(struct sl_fabric *fabric, uint32_t memory)
{
    bool gone = false;
    sl_err err = sl_fabric_memory_remove_step(fabric, memory, &gone);
    while (err == SL_OK && !gone) {
        ck_assert_int_eq(sl_fabric_memory_remove_step(fabric, memory, &gone), SL_OK);
    }
    return err;
}

void pattern_fill(unsigned char *at, uint64_t length_bytes, uint64_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint64_t i = 0; i < length_bytes; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(at + i, &x, SL_MIN(length_bytes - i, UINT64_C(8)));
    }
}

bool pattern_is(const unsigned char *at, uint64_t length_bytes, uint64_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint64_t i = 0; i < length_bytes; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        if (memcmp(at + i, &x, SL_MIN(length_bytes - i, UINT64_C(8))) != 0) {
            return false;
        }
    }
    return true;
}

uint32_t end_grant(struct fabric_end *owner, const struct sl_fabric_grant *want)
{
    struct sl_error why = {0};
    uint32_t grant = 0, before = owner->granted;
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * SL_NS_PER_S;
    sl_err err = sl_fabric_grant_add(owner->fabric, want, &grant, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    while (owner->granted == before) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        end_step(owner, 1);
    }
    return grant;
}

static uint32_t key_open(const struct fabric_end *owner, struct fabric_end *user)
{
    struct sl_error why = {0};
    uint32_t key = 0;
    sl_err err =
        sl_fabric_key_open(user->fabric, user->peer, owner->key, owner->key_bytes, &key, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    return key;
}

uint32_t pair_key(struct fabric_end *owner, struct fabric_end *user)
{
    uint32_t before = owner->granted;
    PAIR_UNTIL(owner, user, owner->granted > before);
    return key_open(owner, user);
}

uint32_t pair_grant(struct fabric_end *owner, struct fabric_end *user, uint64_t offset_bytes,
                    uint64_t length_bytes, uint32_t *key)
{
    const struct sl_fabric_grant want = {.memory = owner->memory,
                                         .peer = owner->peer,
                                         .offset_bytes = offset_bytes,
                                         .length_bytes = length_bytes};
    uint32_t grant = end_grant(owner, &want);
    *key = key_open(owner, user);
    return grant;
}

sl_err end_post(struct fabric_end *end, uint32_t key, uint64_t offset_bytes, uint64_t length_bytes,
                uint64_t cookie, uint64_t deadline_ns)
{
    struct sl_fabric_piece piece = {.memory = end->memory,
                                    .key = key,
                                    .offset_bytes = offset_bytes,
                                    .remote_offset_bytes = offset_bytes,
                                    .length_bytes = length_bytes};
    struct sl_fabric_transfer transfer = {.peer = end->peer,
                                          .pieces = &piece,
                                          .piece_count = 1,
                                          .deadline_ns = deadline_ns,
                                          .cookie = cookie};
    return sl_fabric_post(end->fabric, &transfer, NULL);
}

const struct end_done *end_done_of(const struct fabric_end *end, uint64_t cookie)
{
    uint32_t kept = SL_MIN(end->done_count, END_DONES_MAX);
    for (uint32_t i = 0; i < kept; i++) {
        if (end->dones[i].cookie == cookie) {
            return &end->dones[i];
        }
    }
    return NULL;
}

/* ---- a peer played by the test ---- */

struct sl_wire_address guest_address(const struct fabric_end *end)
{
    struct sl_wire_address address;
    ck_assert_int_eq(sl_wire_address_read(end->address, SL_WIRE_ADDRESS_BYTES, &address, NULL),
                     SL_OK);
    return address;
}

void guest_say(int fd, struct sl_records *sealer, const void *bytes, size_t length_bytes)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    const uint8_t head = 1;
    const struct sl_seal_job job = {
        .sealer = sealer, .message = &message, .parts = &part, .heads = &head};
    ck_assert_int_eq(sl_seal_fill(&job), 0);
    ck_assert_int_eq(send(fd, sealer->staging, sealer->end, 0), (ssize_t)sealer->end);
    sealer->begin = sealer->end;
}

void peer_receive(struct fabric_end *end, int fd, unsigned char *answer, size_t length_bytes)
{
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * SL_NS_PER_S;
    for (size_t got = 0; got < length_bytes;) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        end_step(end, 2);
        ssize_t more = recv(fd, answer + got, length_bytes - got, MSG_DONTWAIT);
        ck_assert(more != 0);
        got += more > 0 ? (size_t)more : 0;
    }
}

void peer_handshake(struct fabric_end *end, int fd, struct sl_records *sealer)
{
    const struct sl_wire_address address = guest_address(end);
    const struct sl_handshake_options options = {.id = address.id, .key = address.psk};
    unsigned char bytes[4096];
    struct sl_tls *tls = NULL;
    struct sl_handshake *handshake = NULL;
    struct sl_records opener;
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 30 * SL_NS_PER_S;
    ck_assert_int_eq(sl_tls_open(SL_AEAD_BEST, &tls, NULL), SL_OK);
    ck_assert_int_eq(sl_handshake_begin(tls, &options, &handshake, NULL), SL_OK);
    ck_assert_int_eq(sl_records_init(&opener, NULL), SL_OK);
    ck_assert_int_eq(sl_records_init(sealer, NULL), SL_OK);
    sl_err err = sl_handshake_step(handshake, "", 0, NULL);
    for (uint32_t said = 1; err == SL_ERR_BUSY || said > 0;) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        said = sl_handshake_output(handshake, bytes, sizeof(bytes));
        ck_assert_int_eq(send(fd, bytes, said, 0), (ssize_t)said);
        end_step(end, 2);
        ssize_t more = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        ck_assert(more != 0);
        err = more > 0 ? sl_handshake_step(handshake, bytes, (uint32_t)more, NULL) : err;
    }
    ck_assert_int_eq(err, SL_OK);
    ck_assert_int_eq(sl_handshake_keys(handshake, &opener, sealer, NULL), SL_OK);
    sl_handshake_end(&handshake);
    sl_tls_close(&tls);
    sl_records_fini(&opener);
}

void guest_greet(struct fabric_end *end, int fd, struct sl_records *sealer)
{
    const struct sl_wire_request hello = {.verb = SL_WIRE_HELLO, .grant = 1};
    unsigned char frame[SL_WIRE_REQUEST_BYTES], answer[SL_WIRE_ANSWER_BYTES];
    peer_handshake(end, fd, sealer);
    sl_wire_request_write(&hello, frame);
    guest_say(fd, sealer, frame, sizeof(frame));
    peer_receive(end, fd, answer, sizeof(answer));
}

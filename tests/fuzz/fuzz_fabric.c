/* tests/fuzz/fuzz_fabric.c - frames, addresses and keys from outside, and whole conversations with
 * a listening fabric: no input may change its memory. One of the grants is a single range, the
 * other has many ranges. Lists of ranges come from the fuzzer as well.
 *
 * A conversation is one of three: a valid HELLO followed by the fuzzer's bytes, in records or not;
 * only the fuzzer's bytes; or a TLS handshake changed by them. Records to be opened are made by the
 * fuzzer in records(). */
#include "ipc/msg/sl_ticket.h"
#include "runtime/net/fabric/core/internal.h"
#include "runtime/net/fabric/core/wire.h"
#include "runtime/net/fabric/tcp/handshake.h"
#include "runtime/net/fabric/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMORY   65536u
#define GRANTED  16384u /* offset of the readable range */
#define GRANT    8192u
#define SENTINEL 0xc5
#define PLACES   40u /* of the other grant: after the first one's range, with gaps */
#define PLACE    300u
#define STEP     1000u

static struct sl_fabric *fabric;
static unsigned char *memory;
static struct sl_wire_address address;
static struct sl_wire_key keys[2]; /* of the single range, of the many ranges */
static struct sl_fabric_place places[PLACES];
static uint32_t memory_handle, peer_handle;
static uint64_t clock_ns = 1000;
static bool registered;
static uint32_t granted; /* keys that have arrived */

static void on_address(void *context, uint32_t peer, const void *blob, uint32_t length_bytes)
{
    (void)context;
    (void)peer;
    if (sl_wire_address_read(blob, length_bytes, &address, NULL) != SL_OK) {
        abort();
    }
}

static void on_registered(void *context, uint32_t handle, uint32_t region_index,
                          const struct sl_error *why)
{
    (void)context;
    (void)handle;
    (void)region_index;
    registered = why->code == SL_OK;
}

static void on_granted(void *context, uint32_t grant, const void *key, uint32_t key_bytes,
                       const struct sl_error *why)
{
    (void)context;
    (void)grant;
    (void)why;
    if (granted < 2 && sl_wire_key_read(key, key_bytes, &keys[granted++], NULL) != SL_OK) {
        abort();
    }
}

static void open_once(void)
{
    struct sl_fabric_options options;
    uint32_t grant = 0;
    if (fabric != NULL) {
        return;
    }
    sl_fabric_options_init(&options, "tcp");
    options.address = "127.0.0.1";
    options.peers_max = 1;
    options.lanes = 1;
    options.connections_max = 64; /* those of earlier inputs may still be open */
    options.clear = true;         /* answers in the clear if asked to */
    options.seed = 1;
    options.events.address = on_address;
    options.events.registered = on_registered;
    options.events.granted = on_granted;
    memory = malloc(MEMORY);
    if (memory == NULL || sl_fabric_open(&options, &fabric, NULL) != SL_OK ||
        sl_fabric_peer_add(fabric, &peer_handle, NULL) != SL_OK) {
        abort();
    }
    struct sl_fabric_memory what = {.at = memory, .length_bytes = MEMORY, .chunk_bytes = MEMORY};
    if (sl_fabric_memory_add(fabric, &what, &memory_handle, NULL) != SL_OK) {
        abort();
    }
    while (!registered || address.port == 0) {
        sl_fabric_step(fabric, ++clock_ns);
    }
    for (uint32_t i = 0; i < PLACES; i++) { /* backwards */
        places[i] =
            (struct sl_fabric_place){.memory = memory_handle,
                                     .offset_bytes = GRANTED + GRANT + (PLACES - 1 - i) * STEP + 1,
                                     .length_bytes = PLACE};
    }
    for (int i = 0; i < 2; i++) {
        struct sl_fabric_grant want = {.memory = memory_handle,
                                       .peer = peer_handle,
                                       .offset_bytes = GRANTED,
                                       .length_bytes = i == 0 ? GRANT : PLACES * PLACE,
                                       .places = i == 0 ? NULL : places,
                                       .place_count = i == 0 ? 0 : PLACES};
        if (sl_fabric_grant_add(fabric, &want, &grant, NULL) != SL_OK) {
            abort();
        }
    }
    while (granted < 2) { /* keys arrive in the order of the grants */
        sl_fabric_step(fabric, ++clock_ns);
    }
}

/* A ticket is decoded as it was encoded, or refused. */
static void ticket(const uint8_t *data, size_t size)
{
    struct sl_ticket_fields ticket, again;
    unsigned char out[SL_TICKET_BYTES_MAX];
    if (sl_ticket_read(data, size, &ticket, NULL) == SL_OK) {
        uint32_t written = sl_ticket_write(&ticket, out);
        if (written > size || sl_ticket_read(out, written, &again, NULL) != SL_OK ||
            again.number != ticket.number || strcmp(again.node, ticket.node) != 0 ||
            memcmp(again.secret, ticket.secret, sizeof(ticket.secret)) != 0) {
            abort();
        }
    }
}

static void parsers(const uint8_t *data, size_t size)
{
    struct sl_wire_request request, again;
    struct sl_wire_answer answer;
    struct sl_wire_address where;
    struct sl_wire_key key;
    unsigned char bytes[SL_WIRE_REQUEST_BYTES] = {0}, out[SL_WIRE_REQUEST_BYTES];
    memcpy(bytes, data, SL_MIN(size, sizeof(bytes)));
    if (sl_wire_request_read(bytes, &request, NULL) == SL_OK) {
        sl_wire_request_write(&request, out);
        if (memcmp(bytes, out, sizeof(out)) != 0 ||
            sl_wire_request_read(out, &again, NULL) != SL_OK) {
            abort();
        }
    }
    (void)sl_wire_answer_read(bytes, &answer, NULL);
    (void)sl_wire_address_read(data, (uint32_t)size, &where, NULL);
    (void)sl_wire_key_read(data, (uint32_t)size, &key, NULL);
    if (sl_fabric_verbs.key_parse != NULL) {
        struct fabric_right parsed = {0};
        (void)sl_fabric_verbs.key_parse(fabric->rails[0], data, (uint32_t)size, &parsed, NULL);
        free(parsed.regions);
        free(parsed.lane_rkeys);
    }
}

static void say(int fd, const void *bytes, size_t length)
{
    ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
    sl_fabric_step(fabric, clock_ns);
    unsigned char heard[4096];
    while (recv(fd, heard, sizeof(heard), MSG_DONTWAIT) > 0) {
        for (size_t i = 0; i < sizeof(heard); i++) {
            (void)heard[i];
        }
    }
}

static struct sl_tls *tls;
static struct sl_records session; /* of the connection, after a valid HELLO */

static void say_sealed(int fd, const void *bytes, size_t length)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    const uint8_t head = 1;
    const struct sl_seal_job job = {
        .sealer = &session, .message = &message, .parts = &part, .heads = &head};
    if (session.staging == NULL) {
        say(fd, bytes, length);
    } else if (length > 0 && sl_seal_fill(&job) == 0) {
        say(fd, session.staging, session.end);
        session.begin = session.end;
    }
}

/* Sends a frame with the right secrets; its other fields are the fuzzer's. */
static void say_frame(int fd, const uint8_t *fields)
{
    unsigned char frame[SL_WIRE_REQUEST_BYTES];
    struct sl_wire_request request = {
        .verb = (enum sl_wire_verb)(fields[0] % 5),
        .sequence = fields[1],
        .length_bytes = (uint32_t)(fields[2] | fields[3] << 8),
        .offset_bytes =
            (uint64_t)(fields[4] | fields[5] << 8) + (fields[6] > 250 ? ~0ull << 16 : 0),
    };
    const struct sl_wire_key *key = &keys[fields[0] >= 128 ? 1 : 0];
    request.generation = key->generation;
    request.grant = key->grant;
    memcpy(request.token, key->token, sizeof(request.token));
    sl_wire_request_write(&request, frame);
    say_sealed(fd, frame, sizeof(frame) - (fields[7] > 250 ? fields[7] - 250u : 0));
}

static struct sl_handshake *shake_begin(void)
{
    struct sl_handshake *handshake = NULL;
    const struct sl_handshake_options options = {.id = address.id, .key = address.psk};
    if ((tls == NULL && sl_tls_open(SL_AEAD_BEST, &tls, NULL) != SL_OK) ||
        sl_handshake_begin(tls, &options, &handshake, NULL) != SL_OK) {
        abort();
    }
    return handshake;
}

static void greet(int fd, bool clear)
{
    const struct sl_wire_request hello = {.verb = SL_WIRE_HELLO, .grant = clear};
    unsigned char bytes[4096];
    struct sl_handshake *handshake = shake_begin();
    struct sl_records opener;
    sl_err err = sl_handshake_step(handshake, "", 0, NULL);
    uint32_t said = 1;
    for (int i = 0; i < 20000 && (err == SL_ERR_BUSY || said > 0); i++) {
        said = sl_handshake_output(handshake, bytes, sizeof(bytes));
        if (send(fd, bytes, said, MSG_NOSIGNAL) != (ssize_t)said) {
            abort();
        }
        sl_fabric_step(fabric, ++clock_ns);
        ssize_t more = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        err = more > 0 ? sl_handshake_step(handshake, bytes, (uint32_t)more, NULL) : err;
        if (i > 100) { /* at least two seconds: the machine may be busy */
            (void)usleep(100);
        }
    }
    if (err != SL_OK || sl_records_init(&opener, NULL) != SL_OK ||
        sl_records_init(&session, NULL) != SL_OK ||
        sl_handshake_keys(handshake, &opener, &session, NULL) != SL_OK) {
        abort(); /* a valid HELLO must be answered */
    }
    sl_records_fini(&opener);
    sl_handshake_end(&handshake);
    sl_wire_request_write(&hello, bytes);
    say_sealed(fd, bytes, SL_WIRE_REQUEST_BYTES);
}

/* Sends the start of a handshake, with some bytes changed by the fuzzer. */
static void say_handshake(int fd, const uint8_t *data, size_t size)
{
    unsigned char bytes[2048];
    struct sl_handshake *handshake = shake_begin();
    (void)sl_handshake_step(handshake, "", 0, NULL);
    uint32_t length = sl_handshake_output(handshake, bytes, sizeof(bytes));
    for (size_t i = 0; i + 3 <= size && i < 24; i += 3) {
        bytes[(uint32_t)(data[i] | data[i + 1] << 8) % length] ^= data[i + 2];
    }
    say(fd, bytes, length);
    sl_handshake_end(&handshake);
}

/* Opens records with a right key, so that only the tag protects us. */
static void records(const uint8_t *data, size_t size)
{
    static const uint8_t secret[SL_RECORD_SECRET_BYTES] = "the secret of a direction";
    unsigned char plain[300], got[512];
    struct iovec part = {.iov_base = plain, .iov_len = sizeof(plain)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    const uint8_t head = 0;
    enum sl_aead_by opens = size % 2 == 0 ? SL_AEAD_BEST : SL_AEAD_LIBCRYPTO;
    struct sl_records opener;
    struct sl_records sealer;
    const struct sl_seal_job job = {
        .sealer = &sealer, .message = &message, .parts = &part, .heads = &head};
    memset(plain, 0x3c, sizeof(plain));
    if (sl_records_init(&opener, NULL) != SL_OK || sl_records_init(&sealer, NULL) != SL_OK ||
        sl_record_key_init(&opener.key, SL_SUITE_AES_128_GCM, secret, false, opens, NULL) !=
            SL_OK ||
        sl_record_key_init(&sealer.key, SL_SUITE_AES_128_GCM, secret, true, SL_AEAD_LIBCRYPTO,
                           NULL) != SL_OK ||
        sl_seal_fill(&job) != 0) {
        abort();
    }
    struct iovec space = sl_opener_space(&opener);
    size_t length = SL_MIN(size, (size_t)64);
    memcpy(space.iov_base, sealer.staging, sealer.end);
    for (size_t i = 0; i + 2 < length; i += 3) {
        ((unsigned char *)space.iov_base)[sl_wire_get(data + i, 2) % sealer.end] ^= data[i + 2];
    }
    bool same = memcmp(space.iov_base, sealer.staging, sealer.end) == 0;
    sl_opener_received(&opener, sealer.end);
    int32_t taken = sl_opener_take(&opener, sl_runs_of(got, sizeof(got)), sizeof(got), NULL);
    if (same ? taken != sizeof(plain) || memcmp(got, plain, sizeof(plain)) != 0 : taken > 0) {
        abort(); /* a changed record must not open */
    }
    sl_records_fini(&opener);
    sl_records_fini(&sealer);
}

/* In the clear: the fuzzer's bytes arrive in pieces of its choice, and are taken as values and
 * heads. No byte is lost, duplicated or misplaced. */
static void clear(const uint8_t *data, size_t size)
{
    struct sl_records opener;
    size_t came = 0, taken = 0;
    if (sl_records_init(&opener, NULL) != SL_OK) {
        abort();
    }
    opener.clear = true;
    for (size_t i = 0; i + 1 < size; i += 2) {
        unsigned char value[512], head[SL_WIRE_ANSWER_BYTES];
        bool heads = data[i] < 64 && taken + sizeof(head) <= size, other = data[i] < 16;
        uint32_t want = heads ? 0 : 1 + data[i] * 2u;
        memcpy(head, data + taken, SL_MIN(sizeof(head), size - taken));
        head[data[i] % sizeof(head)] ^= other;
        for (int32_t got = 0; got == 0;) {
            struct iovec parts[SL_OPENER_PARTS];
            uint32_t low = 0, count = 0;
            got = heads ? sl_opener_expect(&opener, head)
                        : sl_opener_take(&opener, sl_runs_of(value, want), want, NULL);
            if (got > 0 && !heads && memcmp(value, data + taken, (size_t)got) != 0) {
                abort();
            }
            if (got < 0 && !(heads && other)) {
                abort();
            }
            taken += got > 0 ? (size_t)got : 0;
            if (got != 0) {
                break;
            }
            size_t left = SL_MIN(1 + data[i + 1] % 64u, size - came), filled = 0;
            uint32_t parts_count =
                sl_opener_parts(&opener, sl_runs_of(value, want), want, parts, &low);
            for (; count < parts_count && left > 0; count++) {
                size_t bytes = SL_MIN(left, parts[count].iov_len);
                memcpy(parts[count].iov_base, data + came + filled, bytes);
                filled += bytes;
                left -= bytes;
            }
            if (filled == 0) {
                sl_records_fini(&opener);
                return; /* all of it has arrived */
            }
            came += filled;
            sl_opener_received(&opener, (uint32_t)filled);
        }
    }
    sl_records_fini(&opener);
}

/* A list from outside is accepted if all of it is within the memory, and otherwise not at all. */
static void lists(const uint8_t *data, size_t size)
{
    struct sl_fabric_place list[16];
    uint32_t grant = 0, count = 0;
    uint64_t sum = 0;
    bool good = size >= 9;
    for (; count < SL_COUNT(list) && (count + 1) * 8 < size; count++) {
        const uint8_t *at = data + 1 + (size_t)count * 8;
        uint64_t offset = sl_wire_get(at, 4), length = sl_wire_get(at + 4, 3);
        offset = at[7] > 250 ? UINT64_MAX - offset : offset % (2 * MEMORY);
        length = at[7] > 240 ? UINT64_MAX - length : length % 4096;
        list[count] = (struct sl_fabric_place){
            .memory = memory_handle + (at[7] == 1), .offset_bytes = offset, .length_bytes = length};
        good = good && at[7] != 1 && length > 0 && length <= MEMORY && offset <= MEMORY - length;
        sum += length;
    }
    const struct sl_fabric_grant want = {.peer = peer_handle,
                                         .length_bytes = sum + (size > 0 && data[0] == 7),
                                         .places = list,
                                         .place_count = count};
    sl_err err = sl_fabric_grant_add(fabric, &want, &grant, NULL);
    if ((err == SL_OK) != (good && data[0] != 7)) {
        abort();
    }
    if (err == SL_OK && sl_fabric_grant_end(fabric, grant) != SL_OK) {
        abort();
    }
    sl_fabric_step(fabric, ++clock_ns);
    if (fabric->places.used_count != PLACES) { /* those of our own grant */
        abort();
    }
}

static void conversation(const uint8_t *data, size_t size)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(address.port)};
    memcpy(&to.sin_addr, address.ip, 4);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        close(fd);
        return;
    }
    struct linger at_once = {.l_onoff = 1}; /* otherwise the loopback runs out of ports */
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    memset(memory, SENTINEL, MEMORY);
    sl_records_fini(&session);
    if (data[0] < 160) {
        greet(fd, data[0] < 80);
    } else if (data[0] < 210) {
        say_handshake(fd, data, size);
    } /* else the fuzzer's bytes are the first ones */
    for (size_t at = 0; at + 9 <= size;) {
        const uint8_t *record = data + at;
        at += 9;
        if (record[0] < 128) {
            say_frame(fd, record + 1);
        } else if (record[0] < 250) {
            size_t length = SL_MIN((size_t)(record[1] | record[2] << 6), size - at);
            say_sealed(fd, data + at, length);
            at += length;
        } else {
            clock_ns += (uint64_t)record[1] * SL_NS_PER_S / 16;
            sl_fabric_step(fabric, clock_ns);
        }
    }
    close(fd);
    for (int i = 0; i < 8; i++) {
        sl_fabric_step(fabric, ++clock_ns);
    }
    for (uint32_t i = 0; i < MEMORY; i++) {
        if (memory[i] != SENTINEL) {
            abort(); /* no peer may write here */
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_once();
    parsers(data, size);
    ticket(data, size);
    lists(data, size);
    records(data, size);
    clear(data, size);
    if (size >= 9) {
        conversation(data, size);
    }
    return 0;
}

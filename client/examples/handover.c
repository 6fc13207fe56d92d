/* client/examples/handover.c - a prefill and a decode engine, each a process on this host, that hand requests over:
 *
 *     sluice-node start && cc client/examples/handover.c -lsluice -o handover && ./handover [direct]
 *
 * Of every request decode announces its id, prefill computes the blocks of its input and sends them, and decode receives
 * them into blocks of its own and checks every byte. What the engines tell each other beside that (here: by a socket) is
 * plain data: a receipt travels with the first token, and, with `direct`, a ticket with the announcement. */
#include <sluice.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUESTS = 8, BLOCK_TOKENS = 16, BLOCKS = 4, LAYERS = 2, PIECE_BYTES = 4096 };
enum { TOKENS = BLOCKS * BLOCK_TOKENS - 5 }; /* the last block is incomplete */
#define TIMEOUT_NS UINT64_C(30000000000)

struct message { /* decode to prefill: id, number, ticket; back: receipt, ok */
    uint64_t id;
    uint32_t number;
    bool ok;
    struct sl_ticket ticket;
    struct sl_receipt receipt;
};

struct side {
    struct sl_client *client;
    struct sl_engine *engine;
    struct sl_engine_layer layers[LAYERS];
    enum sl_handover_mode mode;
    int channel;
};

static bool failed(const char *what, const struct sl_error *why)
{
    fprintf(stderr, "handover: %s: %s\n", what, why->text);
    return false;
}

static bool side_open(struct side *side, const char *name)
{
    struct sl_error why = {0};
    const struct sl_client_options client = {.api_version = SLUICE_API_VERSION};
    for (uint32_t i = 0; i < LAYERS; i++) {
        side->layers[i] =
            (struct sl_engine_layer){.offset_bytes = (uint64_t)i * BLOCKS * PIECE_BYTES,
                                     .length_bytes = BLOCKS * PIECE_BYTES,
                                     .block_stride_bytes = PIECE_BYTES,
                                     .piece_bytes = PIECE_BYTES};
    }
    const struct sl_engine_pool pool = {.name = "attention",
                                        .kind = SL_POOL_ATTENTION,
                                        .layer_count = LAYERS,
                                        .layers = side->layers,
                                        .memory_bytes = LAYERS * BLOCKS * PIECE_BYTES};
    const struct sl_engine_options engine = {
        .name = name,
        .model = {.name = "example", .revision = "1", .dtype = "u8", .layout = "layer-first"},
        .key_format = "sluice",
        .block_tokens = BLOCK_TOKENS,
        .world = 1,
        .block_count = BLOCKS,
        .pool_count = 1,
        .pools = &pool,
    };
    return (sl_client_open(&client, &side->client, &why) == SL_OK &&
            sl_engine_register(side->client, &engine, 0, &side->engine, &why) == SL_OK) ||
           failed(name, &why);
}

static void side_close(struct side *side)
{
    sl_engine_end(&side->engine);
    sl_client_close(&side->client);
}

/* The KV bytes of a request, as a model would compute them: each block its own. */
static unsigned char byte_of(uint32_t number, uint32_t layer, uint32_t block)
{
    return (unsigned char)(1 + number * 31 + layer * 7 + block);
}

static unsigned char *piece_of(const struct side *side, uint32_t layer, uint32_t block)
{
    unsigned char *memory = sl_engine_memory(side->engine, 0, 0);
    return memory + side->layers[layer].offset_bytes + (size_t)block * PIECE_BYTES;
}

static struct sl_op_request request_of(uint32_t number, uint32_t *tokens, uint32_t *blocks)
{
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = number * 1000 + i;
        blocks[i / BLOCK_TOKENS] = i / BLOCK_TOKENS;
    }
    return (struct sl_op_request){.tokens = tokens,
                                  .token_count = TOKENS,
                                  .device_blocks = blocks,
                                  .device_block_count = BLOCKS,
                                  .timeout_ns = TIMEOUT_NS};
}

/* ---- prefill ---- */

static bool prefill_one(struct side *side, struct message *message)
{
    struct sl_error why = {0};
    struct sl_op *op = NULL;
    struct sl_op_result result = {.code = SL_ERR_TIMEOUT};
    uint32_t tokens[TOKENS], blocks[BLOCKS];
    const struct sl_op_request request = request_of(message->number, tokens, blocks);
    const struct sl_handover_options options = {
        .id = message->id,
        .mode = side->mode,
        .ticket = message->ticket.length_bytes != 0 ? &message->ticket : NULL};
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t block = 0; block < BLOCKS; block++) {
            memset(piece_of(side, layer, block), byte_of(message->number, layer, block),
                   PIECE_BYTES);
        }
    }
    if (sl_handover_send_start(side->engine, &request, &options, &op, &why) != SL_OK) {
        return failed("send", &why);
    }
    /* An engine polls in its token loop. Only now the first token may go, with the receipt. */
    bool ok =
        sl_op_wait(op, TIMEOUT_NS, &result) == SL_OK && result.code == SL_OK &&
        sl_op_receipt(op, &message->receipt, &result.why) == SL_OK &&
        sl_op_wait_fenced(op, TIMEOUT_NS, &result.why) == SL_OK; /* then the blocks are free */
    sl_op_release(&op);
    return ok || failed("prefill", &result.why);
}

static int prefill_run(int channel, enum sl_handover_mode mode)
{
    struct side side = {.channel = channel, .mode = mode};
    struct message message;
    bool fine = side_open(&side, "example prefill");
    while (fine && recv(channel, &message, sizeof message, 0) == (ssize_t)sizeof message) {
        message.ok = prefill_one(&side, &message);
        fine = send(channel, &message, sizeof message, MSG_NOSIGNAL) == (ssize_t)sizeof message;
    }
    side_close(&side);
    return fine ? 0 : 1;
}

/* ---- decode ---- */

static bool bytes_right(const struct side *side, uint32_t number)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t block = 0; block < BLOCKS; block++) {
            const unsigned char *piece = piece_of(side, layer, block);
            if (*piece != byte_of(number, layer, block) ||
                memcmp(piece, piece + 1, PIECE_BYTES - 1) != 0) {
                fprintf(stderr, "handover: request %u, layer %u, block %u has wrong bytes\n",
                        number, layer, block);
                return false;
            }
        }
    }
    return true;
}

static bool decode_one(struct side *side, uint32_t number)
{
    struct sl_error why = {0};
    struct sl_op *op = NULL;
    struct sl_op_result result = {.code = SL_ERR_TIMEOUT};
    struct message message = {.number = number};
    uint32_t tokens[TOKENS], blocks[BLOCKS];
    const struct sl_op_request request = request_of(number, tokens, blocks);
    sl_err code = SL_OK;
    while (message.id == 0) { /* never used twice */
        (void)getrandom(&message.id, sizeof message.id, 0);
    }
    const struct sl_handover_options options = {.id = message.id, .mode = side->mode};
    if (sl_handover_receive_start(side->engine, &request, &options, &op, &why) != SL_OK) {
        return failed("receive", &why);
    }
    /* BUSY: not yet. Without a ticket it goes through storage. */
    while (side->mode == SL_HANDOVER_DIRECT &&
           sl_op_ticket(op, &message.ticket, TIMEOUT_NS, NULL) == SL_ERR_BUSY) {
        (void)usleep(200);
    }
    bool ok =
        send(side->channel, &message, sizeof message, MSG_NOSIGNAL) == (ssize_t)sizeof message &&
        recv(side->channel, &message, sizeof message, 0) == (ssize_t)sizeof message && message.ok;
    /* The first token came: the load goes on. NOT_FOUND: a direct one is over already. */
    ok = ok &&
         sl_handover_arrived(side->client, &message.receipt, 1, &code, TIMEOUT_NS, &why) == SL_OK;
    if (!ok) {
        (void)sl_op_cancel(op, NULL);
    }
    ok = sl_op_wait(op, TIMEOUT_NS, &result) == SL_OK && result.code == SL_OK && ok;
    if (!ok) {
        failed("decode (an engine answers 502 when the code is SL_ERR_HANDOVER)", &result.why);
    }
    ok = ok && bytes_right(side, number);
    (void)sl_op_wait_fenced(op, TIMEOUT_NS, NULL);
    sl_op_release(&op);
    return ok;
}

int main(int argc, char **argv)
{
    int channel[2], status = 1;
    bool direct = argc == 2 && strcmp(argv[1], "direct") == 0;
    enum sl_handover_mode mode = direct ? SL_HANDOVER_DIRECT : SL_HANDOVER_BY_STORAGE;
    if (argc > 2 || (argc == 2 && !direct) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel) != 0) {
        fprintf(stderr, "usage: handover [direct]\n");
        return 2;
    }
    pid_t prefill = fork();
    if (prefill == 0) {
        (void)close(channel[0]);
        _exit(prefill_run(channel[1], mode));
    }
    (void)close(channel[1]);
    struct side side = {.channel = channel[0], .mode = mode};
    uint32_t done = 0;
    bool open = prefill > 0 && side_open(&side, "example decode");
    while (open && done < REQUESTS && decode_one(&side, done)) {
        done++;
    }
    side_close(&side);
    (void)close(channel[0]); /* prefill ends */
    bool ended = prefill > 0 && waitpid(prefill, &status, 0) == prefill && status == 0;
    printf("%u of %u requests handed over, every byte right\n", done, (unsigned)REQUESTS);
    return done == REQUESTS && ended ? 0 : 1;
}

/* client/examples/handover.c - a prefill and a decode engine that hand requests over, through
 * storage or directly:
 *
 *     sluice-node start
 *     cc client/examples/handover.c -lsluice -o handover && ./handover [direct]
 *
 * Both are in this process, so that the order of calls is in one place (hand_over). Usually each is
 * a process on any host, and exchanges plain data with the other: id and ticket go to prefill, the
 * receipt to decode. */
#include <sluice.h>

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { REQUESTS = 8, BLOCK_TOKENS = 16, BLOCKS = 4, BLOCK_BYTES = 8192 };
enum { TOKENS = BLOCKS * BLOCK_TOKENS - 5 }; /* the last block is incomplete */
#define TIMEOUT_NS UINT64_C(30000000000)

static sl_err engine_register(struct sl_client *client, const char *name, struct sl_engine **out,
                              struct sl_error *why)
{
    const struct sl_engine_layer layer = {.length_bytes = BLOCKS * BLOCK_BYTES,
                                          .block_stride_bytes = BLOCK_BYTES,
                                          .piece_bytes = BLOCK_BYTES};
    const struct sl_engine_pool pool = {.name = "attention",
                                        .kind = SL_POOL_ATTENTION,
                                        .layer_count = 1,
                                        .layers = &layer,
                                        .memory_bytes = layer.length_bytes};
    const struct sl_engine_options options = {
        .name = name,
        .model = {.name = "example", .revision = "1", .dtype = "u8", .layout = "layer-first"},
        .key_format = "sluice",
        .block_tokens = BLOCK_TOKENS,
        .world = 1,
        .block_count = BLOCKS,
        .pool_count = 1,
        .pools = &pool};
    return sl_engine_register(client, &options, 0, out, why);
}

/* Hands one request over. A real engine calls sl_op_poll in its token loop where this waits. */
static sl_err hand_over(struct sl_client *client, struct sl_engine *prefill,
                        struct sl_engine *decode, uint32_t number, enum sl_handover_mode mode,
                        struct sl_error *why)
{
    static const uint32_t blocks[BLOCKS] = {0, 1, 2, 3};
    uint32_t tokens[TOKENS];
    const struct sl_op_request request = {.tokens = tokens,
                                          .token_count = TOKENS,
                                          .device_blocks = blocks,
                                          .device_block_count = BLOCKS,
                                          .timeout_ns = TIMEOUT_NS};
    struct sl_handover_options options = {.mode = mode};
    struct sl_op *receive = NULL, *send = NULL;
    struct sl_op_result result = {0};
    struct sl_ticket ticket;
    struct sl_transfer_params receipt;
    sl_err code = SL_OK;
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = number * 1000 + i;
    }
    while (options.id == 0) { /* an id is never used twice */
        (void)getrandom(&options.id, sizeof options.id, 0);
    }
    /* Decode announces the request early, and waits. */
    sl_err err = sl_kv_receive_start(decode, &request, &options, &receive, why);
    while (err == SL_OK && mode == SL_HANDOVER_DIRECT) {
        sl_err has = sl_op_ticket(receive, &ticket, TIMEOUT_NS, NULL);
        options.ticket = has == SL_OK ? &ticket : NULL; /* without a ticket it uses storage */
        if (has != SL_ERR_BUSY) {
            break;
        }
        (void)usleep(200);
    }
    /* Prefill computes and sends. Then it may send its first token to decode, with the receipt. */
    memset(sl_engine_memory(prefill, 0, 0), (int)number + 1, BLOCKS * BLOCK_BYTES);
    err = err == SL_OK ? sl_kv_send_start(prefill, &request, &options, &send, why) : err;
    err = err == SL_OK ? sl_op_wait(send, TIMEOUT_NS, &result) : err;
    err = err == SL_OK ? sl_op_transfer_params(send, &receipt, why) : err;
    err = err == SL_OK ? sl_op_wait_fenced(send, TIMEOUT_NS, why) : err; /* its blocks are free */
    /* The first token has arrived. NOT_FOUND in code: a direct hand-over has already ended. */
    err = err == SL_OK ? sl_kv_arrived(client, &receipt, 1, &code, TIMEOUT_NS, why) : err;
    err = err == SL_OK ? sl_op_wait(receive, TIMEOUT_NS, &result) : err;
    if (err == SL_OK && result.code != SL_OK) { /* SL_ERR_HANDOVER: an engine answers 502 */
        *why = result.why;
        err = result.code;
    }
    sl_op_release(&send);
    sl_op_release(&receive);
    return err;
}

int main(int argc, char **argv)
{
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION};
    bool direct = argc > 1 && strcmp(argv[1], "direct") == 0;
    struct sl_client *client = NULL;
    struct sl_engine *prefill = NULL, *decode = NULL;
    struct sl_error why = {0};
    uint32_t done = 0;
    bool right = sl_client_open(&options, &client, &why) == SL_OK &&
                 engine_register(client, "prefill", &prefill, &why) == SL_OK &&
                 engine_register(client, "decode", &decode, &why) == SL_OK;
    while (right && done < REQUESTS) {
        enum sl_handover_mode mode = direct ? SL_HANDOVER_DIRECT : SL_HANDOVER_BY_STORAGE;
        right = hand_over(client, prefill, decode, done, mode, &why) == SL_OK &&
                memcmp(sl_engine_memory(prefill, 0, 0), sl_engine_memory(decode, 0, 0),
                       BLOCKS * BLOCK_BYTES) == 0;
        done += right ? 1 : 0;
    }
    printf("%u of %d requests handed over, every byte right%s%s\n", done, REQUESTS,
           right ? "" : "; then: ", right ? "" : why.text);
    sl_engine_end(&prefill);
    sl_engine_end(&decode);
    sl_client_close(&client);
    return right ? 0 : 1;
}

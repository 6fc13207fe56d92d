/* client/examples/engine.c - how an engine uses Sluice for the blocks of a prompt. It stores the
 * blocks it computed; when the prompt is sent again, it loads them into other blocks of its device
 * memory:
 *
 *     sluice-node start && cc client/examples/engine.c -lsluice -o engine && ./engine */
#include <sluice.h>

#include <stdio.h>
#include <string.h>

enum { BLOCK_TOKENS = 16, BLOCKS = 4, BLOCK_BYTES = 4096 };
#define TIMEOUT_NS UINT64_C(30000000000)

/* One rank with one pool, whose memory is allocated here. An engine with a GPU passes its own
 * (sl_engine_pool.device). */
static sl_err engine_register(struct sl_client *client, struct sl_engine **out,
                              struct sl_error *why)
{
    const struct sl_engine_layer layer = {.length_bytes = 2 * BLOCKS * BLOCK_BYTES,
                                          .block_stride_bytes = BLOCK_BYTES,
                                          .piece_bytes = BLOCK_BYTES};
    const struct sl_engine_pool pool = {.name = "attention",
                                        .kind = SL_POOL_ATTENTION,
                                        .layer_count = 1,
                                        .layers = &layer,
                                        .memory_bytes = layer.length_bytes};
    const struct sl_engine_options options = {
        .name = "example",
        .model = {.name = "example", .revision = "1", .dtype = "u8", .layout = "layer-first"},
        .key_format = "sluice",
        .block_tokens = BLOCK_TOKENS,
        .world = 1,
        .block_count = 2 * BLOCKS,
        .pool_count = 1,
        .pools = &pool};
    return sl_engine_register(client, &options, 0, out, why);
}

/* Waits until the op has ended and its device blocks may be used again. */
static bool op_end(struct sl_op *op, struct sl_op_result *result)
{
    bool ended = sl_op_wait(op, TIMEOUT_NS, result) == SL_OK &&
                 sl_op_wait_fenced(op, TIMEOUT_NS, &result->why) == SL_OK;
    sl_op_release(&op);
    return ended && result->code == SL_OK;
}

int main(void)
{
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION};
    static const uint32_t computed[BLOCKS] = {0, 1, 2, 3}, wanted[BLOCKS] = {4, 5, 6, 7};
    uint32_t tokens[BLOCKS * BLOCK_TOKENS];
    struct sl_op_request request = {.tokens = tokens,
                                    .token_count = BLOCKS * BLOCK_TOKENS,
                                    .device_blocks = computed,
                                    .device_block_count = BLOCKS};
    struct sl_client *client = NULL;
    struct sl_engine *engine = NULL;
    struct sl_op *op = NULL;
    struct sl_op_result stored = {0}, loaded = {0};
    bool right = false;
    for (uint32_t i = 0; i < BLOCKS * BLOCK_TOKENS; i++) {
        tokens[i] = i;
    }
    if (sl_client_open(&options, &client, &stored.why) == SL_OK &&
        engine_register(client, &engine, &stored.why) == SL_OK) {
        unsigned char *memory = sl_engine_memory(engine, 0, 0);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            memset(memory + (size_t)i * BLOCK_BYTES, 'a' + (int)i,
                   BLOCK_BYTES); /* the model computes */
        }
        right = sl_store_start(engine, &request, &op, &stored.why) == SL_OK && op_end(op, &stored);
        request.device_blocks = wanted;
        right = right && sl_load_start(engine, &request, &op, &loaded.why) == SL_OK &&
                op_end(op, &loaded) && loaded.block_count == BLOCKS &&
                memcmp(memory, memory + BLOCKS * BLOCK_BYTES, BLOCKS * BLOCK_BYTES) == 0;
    }
    printf("%u blocks stored, %u were stored before, %u loaded, ", stored.stored_count,
           stored.existed_count, loaded.block_count);
    printf("%s%s\n", right ? "every byte right" : stored.why.text, right ? "" : loaded.why.text);
    sl_engine_end(&engine);
    sl_client_close(&client);
    return right ? 0 : 1;
}

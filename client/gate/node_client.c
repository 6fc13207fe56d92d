/* client/gate/node_client.c - see node_client.h. */
#include "client/gate/node_client.h"
#include "client/lib/open_as.h"
#include "runtime/sl_clock.h"

#include <inttypes.h>
#include <stdio.h>

/* The client waits for its answer no longer than 2 s. */
#define OPEN_NS (1500 * SL_NS_PER_MS)

/* Texts "name=value" of what the node's own settings say, at most `room` of them. */
static uint32_t settings_write(const struct sl_config *config, char texts[][64], uint32_t room)
{
    static const enum sl_setting counts[] = {SL_SET_message_bytes_max, SL_SET_client_pins_max};
    static const enum sl_setting times[] = {SL_SET_call_retry, SL_SET_op_timeout};
    uint32_t count = 0;
    for (uint32_t i = 0; i < SL_COUNT(counts) && count < room; i++) {
        (void)snprintf(texts[count++], sizeof(texts[0]), "%s=%" PRIu64, sl_setting_name(counts[i]),
                       sl_config_u64(config, counts[i]));
    }
    for (uint32_t i = 0; i < SL_COUNT(times) && count < room; i++) {
        (void)snprintf(texts[count++], sizeof(texts[0]), "%s=%" PRIu64 "ns",
                       sl_setting_name(times[i]), sl_config_u64(config, times[i]));
    }
    return count;
}

sl_err node_client_open(const char *who, const struct writer_options *options,
                        uint64_t pin_bytes_max, struct sl_client **out, struct sl_error *why)
{
    char runtime_dir[1100], shm_dir[1100], log_dir[1100], pin_bytes[64], numbers[4][64];
    uint32_t number_count = settings_write(options->config, numbers, SL_COUNT(numbers));
    const char *settings[16] = {"attach=files",
                                runtime_dir,
                                shm_dir,
                                log_dir,
                                pin_bytes,
                                sl_config_bool(options->config, SL_SET_guard_memory)
                                    ? "guard_memory=true"
                                    : "guard_memory=false"};
    for (uint32_t i = 0; i < number_count; i++) {
        settings[6 + i] = numbers[i];
    }
    const struct sl_client_options of_client = {
        .api_version = SLUICE_API_VERSION,
        .instance = sl_config_text(options->config, SL_SET_instance),
        .timeout_ns = OPEN_NS,
        .settings = settings};
    (void)snprintf(runtime_dir, sizeof(runtime_dir), "runtime_dir=%s", options->paths->runtime_dir);
    (void)snprintf(shm_dir, sizeof(shm_dir), "shm_dir=%s", options->paths->shm_dir);
    (void)snprintf(log_dir, sizeof(log_dir), "log_dir=%s", options->paths->log_dir);
    (void)snprintf(pin_bytes, sizeof(pin_bytes), "client_pin_bytes_max=%" PRIu64, pin_bytes_max);
    return sl_client_open_as(who, &of_client, out, why);
}

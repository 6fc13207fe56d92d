/* tests/node/death_probe.c - a client with resources that its death must release; death_test.py
 * kills it.
 *
 *   death_probe INSTANCE RUNTIME_DIR SHM_DIR
 *
 * It pins an object of 8 MiB that it has removed, so that only its pin keeps the bytes. It stops
 * in the middle of a put of 16 MiB, whose second half is memory that faults: reserved, half
 * filled, never committed. Prints "holding" and waits to be killed. */
#include "client/include/sluice.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PINNED_BYTES   (8u << 20)
#define RESERVED_BYTES (16u << 20)

static void fail(const char *what, const struct sl_error *why)
{
    (void)fprintf(stderr, "death_probe: %s: %s\n", what, why->text);
    exit(1);
}

static void hold(int number)
{
    (void)number;
    if (write(STDOUT_FILENO, "holding\n", 8) != 8) {
        _exit(1);
    }
    for (;;) {
        (void)pause();
    }
}

static struct sl_object_key key_of(const char *text)
{
    return (struct sl_object_key){.at = text, .length = (uint32_t)strlen(text)};
}

int main(int argc, char **argv)
{
    static char instance[256], runtime_dir[1024], shm_dir[1024];
    const char *settings[4] = {instance, runtime_dir, shm_dir, NULL};
    struct sl_error why = {0};
    struct sl_client *client = NULL;
    struct sl_view view;
    if (argc != 4) {
        return 2;
    }
    (void)snprintf(instance, sizeof instance, "instance=%s", argv[1]);
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", argv[3]);
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .timeout_ns =
                                                  UINT64_C(60000000000), /* only ends hangs */
                                              .settings = settings};
    if (sl_client_open(&options, &client, &why) != SL_OK) {
        fail("open", &why);
    }
    char *value =
        mmap(NULL, RESERVED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (value == MAP_FAILED) {
        return 1;
    }
    memset(value, 1, RESERVED_BYTES);
    if (sl_put(client, key_of("pinned"), value, PINNED_BYTES, 0, &why) != SL_OK ||
        sl_get_pinned(client, key_of("pinned"), &view, 0, &why) != SL_OK ||
        sl_remove(client, key_of("pinned"), 0, &why) != SL_OK) {
        fail("pin", &why);
    }
    const struct sigaction action = {.sa_handler = hold};
    if (sigaction(SIGSEGV, &action, NULL) != 0 ||
        mprotect(value + RESERVED_BYTES / 2, RESERVED_BYTES / 2, PROT_NONE) != 0) {
        return 1;
    }
    (void)sl_put(client, key_of("reserved"), value, RESERVED_BYTES, 0, &why);
    fail("put went through", &why);
    return 1;
}

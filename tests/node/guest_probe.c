/* tests/node/guest_probe.c - a client at a node of another user, which does what it is told;
 * containers_write_test.py drives it.
 *
 *   guest_probe INSTANCE RUNTIME_DIR SHM_DIR
 *
 * Lines, each answered by one: put KEY KIB; get KEY KIB (CODE, "whole" or "wrong"); pin KEY (and keeps the view);
 * look (what each view is: "whole", "wrong", "broken": it is said not to be
 * intact); release (all views); within MS (so long calls may take from now on); puts KEY (4 threads put it); join (their
 * CODES); fork KEY (CODES of a put, a get and a pin of the key in a fork, which then releases the views); leave
 * (closes the client, while a fork lives that does not). The end of the input ends it and its fork. */
#include "client/lib/sluice.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VALUE_BYTES_MAX (1u << 20)
#define VIEWS_MAX       16u
#define CHILD_S         20u
#define PUTTERS         4u

static struct sl_client *client;
static struct sl_view views[VIEWS_MAX];
static char view_keys[VIEWS_MAX][64];
static uint32_t view_count;
static uint64_t timeout_ns = UINT64_C(10000000000);
static unsigned char value[VALUE_BYTES_MAX], got[VALUE_BYTES_MAX];

static struct sl_object_key key_of(const char *text)
{
    return (struct sl_object_key){.at = text, .length = (uint32_t)strlen(text)};
}

static void value_make(const char *key, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        value[i] = (unsigned char)((unsigned char)key[i % strlen(key)] + i / 251);
    }
}

static sl_err put(const char *key, uint64_t length)
{
    value_make(key, length);
    return sl_put(client, key_of(key), value, length, timeout_ns, NULL);
}

static sl_err get(const char *key, uint64_t *length)
{
    const struct sl_buffer buffer = {.at = got, .length_bytes = sizeof got};
    memset(got, 0, sizeof got);
    return sl_get(client, key_of(key), buffer, length, timeout_ns, NULL);
}

static sl_err pin(const char *key)
{
    if (view_count == VIEWS_MAX) {
        return SL_ERR_INVALID;
    }
    sl_err err = sl_get_pinned(client, key_of(key), &views[view_count], timeout_ns, NULL);
    (void)snprintf(view_keys[view_count], sizeof view_keys[0], "%s", key);
    view_count += err == SL_OK;
    return err;
}

static void look(void)
{
    for (uint32_t i = 0; i < view_count; i++) {
        value_make(view_keys[i], views[i].length_bytes);
        bool whole = memcmp(value, views[i].at, views[i].length_bytes) == 0;
        const char *what = !sl_view_intact(client, &views[i]) ? "broken"
                           : whole                            ? "whole"
                                                              : "wrong";
        (void)printf("%s%s", what, i + 1 < view_count ? " " : "");
    }
    (void)printf("\n");
}

static void release(void)
{
    while (view_count > 0) {
        sl_view_release(client, &views[--view_count]);
    }
}

static void forked(const char *key)
{
    pid_t child = fork();
    if (child == 0) {
        uint64_t length = 0;
        (void)alarm(CHILD_S);
        sl_err of_put = put("of-a-fork", VALUE_BYTES_MAX), of_get = get(key, &length);
        sl_err of_pin = pin(key);
        release();
        (void)printf("%s %s %s\n", sl_err_name(of_put), sl_err_name(of_get), sl_err_name(of_pin));
        (void)fflush(stdout);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        (void)printf("no fork, or it ended with %d\n", status);
    }
}

static struct putter {
    pthread_t thread;
    const char *key;
    sl_err err;
} putters[PUTTERS];

static void *putter_run(void *context)
{
    static const unsigned char bytes[64];
    struct putter *self = context;
    self->err = sl_put(client, key_of(self->key), bytes, sizeof bytes, timeout_ns, NULL);
    return NULL;
}

static void putters_start(const char *key)
{
    static char kept[64];
    (void)snprintf(kept, sizeof kept, "%s", key);
    for (uint32_t i = 0; i < PUTTERS; i++) {
        putters[i].key = kept;
        if (pthread_create(&putters[i].thread, NULL, putter_run, &putters[i]) != 0) {
            exit(2);
        }
    }
    (void)printf("they put\n");
}

static void putters_end(void)
{
    for (uint32_t i = 0; i < PUTTERS; i++) {
        (void)pthread_join(putters[i].thread, NULL);
        (void)printf("%s%s", sl_err_name(putters[i].err), i + 1 < PUTTERS ? " " : "\n");
    }
}

static void leave(void)
{
    int ends[2]; /* closed with this process */
    if (pipe(ends) != 0) {
        (void)printf("no pipe\n");
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        char byte;
        (void)close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    sl_client_close(&client);
    (void)printf(child > 0 ? "left\n" : "no fork\n");
}

static void answer(const char *what, const char *key, uint64_t kib)
{
    uint64_t length = 0;
    if (strcmp(what, "put") == 0 && kib <= VALUE_BYTES_MAX >> 10) {
        (void)printf("%s\n", sl_err_name(put(key, kib << 10)));
    } else if (strcmp(what, "get") == 0 && kib <= VALUE_BYTES_MAX >> 10) {
        sl_err err = get(key, &length);
        value_make(key, kib << 10);
        bool whole = length == kib << 10 && memcmp(value, got, length) == 0;
        (void)printf("%s %s\n", sl_err_name(err), whole ? "whole" : "wrong");
    } else if (strcmp(what, "pin") == 0) {
        (void)printf("%s\n", sl_err_name(pin(key)));
    } else if (strcmp(what, "within") == 0) {
        timeout_ns = strtoull(key, NULL, 10) * 1000000;
        (void)printf("so be it\n");
    } else if (strcmp(what, "look") == 0) {
        look();
    } else if (strcmp(what, "release") == 0) {
        release();
        (void)printf("released\n");
    } else if (strcmp(what, "fork") == 0) {
        forked(key);
    } else if (strcmp(what, "puts") == 0) {
        putters_start(key);
    } else if (strcmp(what, "join") == 0) {
        putters_end();
    } else if (strcmp(what, "leave") == 0) {
        leave();
    } else {
        (void)printf("unknown\n");
    }
}

int main(int argc, char **argv)
{
    struct sl_error why = {0};
    char line[128], runtime[512], shm[512];
    if (argc != 4) {
        return 2;
    }
    (void)snprintf(runtime, sizeof runtime, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm, sizeof shm, "shm_dir=%s", argv[3]);
    const char *settings[] = {runtime, shm, NULL};
    const struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .instance = argv[1], .settings = settings};
    if (sl_client_open(&options, &client, &why) != SL_OK) {
        (void)fprintf(stderr, "open: %s\n", why.text);
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *rest = NULL;
        const char *what = strtok_r(line, " \n", &rest), *key = strtok_r(NULL, " \n", &rest);
        const char *kib = strtok_r(NULL, " \n", &rest);
        answer(what == NULL ? "" : what, key == NULL ? "-" : key,
               kib == NULL ? 0 : strtoull(kib, NULL, 10));
    }
    if (client != NULL) {
        release();
        sl_client_close(&client);
    }
    return 0;
}

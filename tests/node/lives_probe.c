/* tests/node/lives_probe.c - a client whose threads put, get, pin and draft without end,
 * whatever happens to the node; lives_test.py and truncate_test.py drive it.
 *
 *   lives_probe INSTANCE RUNTIME_DIR SHM_DIR THREADS
 *
 * Commands, each answered by one line: count ("ops OPS read READ wrong WRONG CODE=TIMES ...");
 * rest (answered when no thread is in a call or holds anything); go; look (one lookup: its
 * code); pin (puts a value and holds a view of it: code); put (a value: code); pool (waits for a
 * pool that no process makes: code); check ("whole" or "broken"); release; draft (begins one:
 * code); write (to it: code); commit (code); touch (opens and closes its pin file, which loses
 * the lock: code); shut (closes all descriptors but three: code); fork (a child that stays: its
 * number); more (opens and closes MORE clients: code); child (a fork closes the client: its
 * status). It exits at the end of the input, with status 1 if a byte was ever wrong. */
#include "client/include/sluice.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX     16u
#define KEYS            40u
#define VIEWS           4u
#define VALUE_BYTES_MAX (256u << 10)
#define TIMEOUT_NS      UINT64_C(500000000)
#define COMMIT_NS       UINT64_C(30000000000) /* for the draft that it is ordered to make */
#define LONG_NS         (100000 * SL_NS_PER_S)
#define CODES           64u
#define MORE            300u /* clients_max is 256 */

struct worker {
    pthread_t thread;
    uint32_t number;
    uint64_t *room; /* VALUE_BYTES_MAX */
    struct sl_view views[VIEWS];
    char view_keys[VIEWS][32];
    struct sl_put_session *draft;
    char draft_key[32];
};

static struct sl_client_options options;
static char **arguments;
static struct sl_client *client;
static struct worker workers[THREADS_MAX];
static uint32_t worker_count;
static _Atomic uint64_t ops, reads, wrong, codes[CODES];
static _Atomic bool ends, rests;
static _Atomic uint32_t resting;

static struct sl_object_key key_of(const char *text)
{
    return (struct sl_object_key){.at = text, .length = (uint32_t)strlen(text)};
}

/* A key determines the length and the words of its value. */
static uint64_t number_of(const char *key)
{
    uint64_t number = 1469598103934665603u;
    for (; *key != '\0'; key++) {
        number = (number ^ (unsigned char)*key) * UINT64_C(1099511628211);
    }
    return number;
}

static uint64_t words_of(const char *key)
{
    return 8 + number_of(key) % (VALUE_BYTES_MAX / 8 - 8);
}

static uint64_t word_of(const char *key, uint64_t at)
{
    return (number_of(key) + at) * UINT64_C(0x9e3779b97f4a7c15) | 1; /* never 0 */
}

static void fill(const char *key, uint64_t *to)
{
    uint64_t number = number_of(key);
    for (uint64_t i = 0; i < words_of(key); i++) {
        to[i] = (number + i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    }
}

static bool is_whole(const char *key, const void *value, uint64_t length_bytes)
{
    const uint64_t *words = value;
    uint64_t number = number_of(key);
    if (length_bytes != words_of(key) * 8) {
        return false;
    }
    for (uint64_t i = 0; i < words_of(key); i++) {
        if (words[i] != ((number + i) * UINT64_C(0x9e3779b97f4a7c15) | 1)) {
            return false;
        }
    }
    return true;
}

static void check(const char *what, const char *key, const void *value, uint64_t length_bytes)
{
    atomic_fetch_add(&reads, 1);
    if (!is_whole(key, value, length_bytes)) {
        const uint64_t *words = value;
        uint64_t bad = 0;
        while (bad < length_bytes / 8 && words[bad] == word_of(key, bad)) {
            bad++;
        }
        (void)fprintf(
            stderr, "%s: '%s' has %ju bytes, expected %ju; word %ju is %016jx, expected %016jx\n",
            what, key, (uintmax_t)length_bytes, (uintmax_t)(words_of(key) * 8), (uintmax_t)bad,
            (uintmax_t)(bad < length_bytes / 8 ? words[bad] : 0), (uintmax_t)word_of(key, bad));
        atomic_fetch_add(&wrong, 1);
    }
}

static sl_err told(sl_err code)
{
    atomic_fetch_add(&codes[code % CODES], 1);
    return code;
}

/* ---- what a thread does ---- */

static void view_release(struct worker *self, uint32_t at)
{
    struct sl_view *view = &self->views[at];
    if (view->at == NULL) {
        return;
    }
    bool whole = is_whole(self->view_keys[at], view->at, view->length_bytes);
    if (whole) { /* not read again: it may be truncated meanwhile */
        atomic_fetch_add(&reads, 1);
    } else if (sl_view_valid(client, view)) {
        check("view", self->view_keys[at], view->at, view->length_bytes);
    }
    sl_view_release(client, view);
}

static void draft_end(struct worker *self, bool commit)
{
    sl_err code = SL_OK;
    if (self->draft == NULL) {
        return;
    }
    uint64_t half = words_of(self->draft_key) / 2 * 8, all = words_of(self->draft_key) * 8;
    fill(self->draft_key, self->room);
    const struct sl_iov piece = {
        .at = self->room + half / 8, .offset_bytes = half, .length_bytes = all - half};
    if (commit && told(sl_put_write(self->draft, &piece, 1, NULL)) == SL_OK) {
        sl_err err = sl_put_end(client, &self->draft, 1, &code, TIMEOUT_NS, NULL);
        (void)told(err != SL_OK ? err : code);
    }
    sl_put_abort(&self->draft);
}

static void draft_begin(struct worker *self, const char *key)
{
    uint64_t length = words_of(key) * 8;
    struct sl_object_key asked = key_of(key);
    sl_err code = SL_OK;
    sl_err err = sl_put_start(client, &asked, NULL, &length, 1, NULL, 0, &self->draft, &code,
                              TIMEOUT_NS, NULL);
    if (told(err != SL_OK ? err : code) != SL_OK) {
        return;
    }
    (void)snprintf(self->draft_key, sizeof self->draft_key, "%s", key);
    fill(key, self->room);
    const struct sl_iov piece = {.at = self->room, .length_bytes = words_of(key) / 2 * 8};
    (void)told(sl_put_write(self->draft, &piece, 1, NULL));
}

static void get(struct worker *self, const char *key)
{
    uint64_t length = 0;
    const struct sl_buffer buffer = {.at = self->room, .length_bytes = VALUE_BYTES_MAX};
    if (told(sl_get(client, key_of(key), buffer, &length, TIMEOUT_NS, NULL)) == SL_OK) {
        check("get", key, self->room, length);
    }
}

static void pin(struct worker *self, const char *key, uint32_t at)
{
    view_release(self, at);
    if (told(sl_get_pinned(client, key_of(key), &self->views[at], TIMEOUT_NS, NULL)) == SL_OK) {
        (void)snprintf(self->view_keys[at], sizeof self->view_keys[at], "%s", key);
    }
}

static void turn(struct worker *self, uint64_t number)
{
    char key[32], other[32];
    sl_err found[2];
    (void)snprintf(key, sizeof key, "w%u-%u", self->number, (unsigned)(number % KEYS));
    (void)snprintf(other, sizeof other, "w%u-%u", (unsigned)(number % worker_count),
                   (unsigned)(number * 7 % KEYS));
    fill(key, self->room);
    (void)told(sl_put(client, key_of(key), self->room, words_of(key) * 8, TIMEOUT_NS, NULL));
    get(self, key);
    get(self, other);
    const struct sl_object_key two[] = {key_of(key), key_of(other)};
    if (sl_exists_batch(client, two, 2, found) == SL_OK) {
        (void)told(found[0]);
        (void)told(found[1]);
    }
    if (number % 4 == 0) {
        pin(self, other, (uint32_t)(number / 4 % VIEWS));
    }
    if (number % 8 == 0) {
        draft_end(self, number % 16 == 0);
        (void)snprintf(key, sizeof key, "d%u-%u", self->number, (unsigned)(number % (KEYS * 8)));
        draft_begin(self, key);
    }
    atomic_fetch_add(&ops, 1);
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    (void)nanosleep(&pause, NULL);
}

static void *run(void *context)
{
    struct worker *self = context;
    for (uint64_t number = 0; !ends; number++) {
        if (rests) {
            for (uint32_t i = 0; i < VIEWS; i++) {
                view_release(self, i);
            }
            draft_end(self, false);
            atomic_fetch_add(&resting, 1);
            while (rests && !ends) {
                nap();
            }
            atomic_fetch_sub(&resting, 1);
        }
        turn(self, number);
    }
    for (uint32_t i = 0; i < VIEWS; i++) {
        view_release(self, i);
    }
    draft_end(self, false);
    return NULL;
}

/* ---- commands of the driver ---- */

static struct sl_view held;
static struct sl_put_session *draft;
static uint64_t held_value[VALUE_BYTES_MAX / 8];

static sl_err pin_held(void)
{
    fill("held", held_value);
    sl_err err = sl_put(client, key_of("held"), held_value, words_of("held") * 8, 0, NULL);
    return err != SL_OK ? err : sl_get_pinned(client, key_of("held"), &held, 0, NULL);
}

static sl_err put_one(void)
{
    return sl_put(client, key_of("one"), "one", 3, 0, NULL);
}

static sl_err pool_await(void)
{
    struct sl_pool *pool = NULL;
    const struct sl_pool_key key = {.deployment = "none", .pool = "none"};
    return sl_pool_await(client, &key, LONG_NS, &pool, NULL);
}

static sl_err draft_held(void)
{
    uint64_t length = words_of("drafted") * 8;
    struct sl_object_key key = key_of("drafted");
    sl_err code = SL_OK;
    sl_err err = sl_put_start(client, &key, NULL, &length, 1, NULL, 0, &draft, &code, 0, NULL);
    return err != SL_OK ? err : code;
}

static sl_err draft_write(void)
{
    fill("drafted", held_value);
    const struct sl_iov piece = {.at = held_value, .length_bytes = words_of("drafted") * 8};
    return draft == NULL ? SL_ERR_INVALID : sl_put_write(draft, &piece, 1, NULL);
}

static sl_err draft_commit(void)
{
    sl_err code = SL_ERR_INVALID;
    sl_err err =
        draft == NULL ? SL_ERR_INVALID : sl_put_end(client, &draft, 1, &code, COMMIT_NS, NULL);
    return err != SL_OK ? err : code;
}

static sl_err more_open(void)
{
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < MORE && err == SL_OK; i++) {
        struct sl_client *one = NULL;
        err = sl_client_open(&options, &one, NULL);
        sl_client_close(&one);
    }
    return err;
}

/* A mistake that programs make: closing any descriptor of the file loses its lock. */
static sl_err pins_touch(void)
{
    char mine[32];
    DIR *all = opendir(arguments[3]);
    const struct dirent *entry;
    sl_err err = SL_ERR_NOT_FOUND;
    (void)snprintf(mine, sizeof mine, "pins.client.%d.", (int)getpid());
    while (all != NULL && (entry = readdir(all)) != NULL) {
        int fd = strncmp(entry->d_name, mine, strlen(mine)) == 0
                     ? openat(dirfd(all), entry->d_name, O_RDONLY)
                     : -1;
        if (fd >= 0 && close(fd) == 0) {
            err = SL_OK;
        }
    }
    return all != NULL && closedir(all) == 0 ? err : SL_ERR_OS;
}

static sl_err descriptors_shut(void)
{
    return close_range(3, ~0u, 0) == 0 ? SL_OK : SL_ERR_OS;
}

static int child_stay(void)
{
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, 0);
        (void)close(1); /* the reader there waits for its end */
        (void)close(2);
        for (;;) {
            (void)pause();
        }
    }
    return (int)child;
}

static int child_close(void)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        sl_view_release(client, &held);
        sl_client_close(&client);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : 1;
}

/* The process stays, and so do its resources at the node. */
static sl_err program_replace(bool closes)
{
    if (closes) {
        sl_client_close(&client);
    }
    (void)execv("/proc/self/exe", arguments);
    return SL_ERR_OS;
}

static sl_err closed_replace(void)
{
    return program_replace(true);
}

static sl_err open_replace(void)
{
    return program_replace(false);
}

static void count_print(void)
{
    (void)printf("ops %ju read %ju wrong %ju", (uintmax_t)ops, (uintmax_t)reads, (uintmax_t)wrong);
    for (uint32_t i = 0; i < CODES; i++) {
        if (codes[i] != 0) {
            (void)printf(" %s=%ju", sl_err_name((sl_err)i), (uintmax_t)codes[i]);
        }
    }
    (void)printf("\n");
}

static void answer(const char *line)
{
    const struct {
        const char *line;
        sl_err (*run)(void);
    } calls[] = {
        {"pin", pin_held},        {"draft", draft_held},      {"write", draft_write},
        {"commit", draft_commit}, {"more", more_open},        {"close exec", closed_replace},
        {"touch", pins_touch},    {"shut", descriptors_shut}, {"exec", open_replace},
        {"put", put_one},         {"pool", pool_await}};
    for (uint32_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (strcmp(line, calls[i].line) == 0) {
            (void)printf("%s\n", sl_err_name(calls[i].run()));
            return;
        }
    }
    if (strcmp(line, "count") == 0) {
        count_print();
    } else if (strcmp(line, "rest") == 0) {
        rests = true;
        while (resting < worker_count) {
            nap();
        }
        (void)printf("rests\n");
    } else if (strcmp(line, "go") == 0) {
        rests = false;
        (void)printf("goes\n");
    } else if (strcmp(line, "look") == 0) {
        (void)printf("%s\n", sl_err_name(sl_exists(client, key_of("held"))));
    } else if (strcmp(line, "check") == 0) {
        (void)printf("%s\n", held.at == NULL                                ? "nothing"
                             : is_whole("held", held.at, held.length_bytes) ? "whole"
                             : sl_view_valid(client, &held)                 ? "wrong"
                                                                            : "broken");
    } else if (strcmp(line, "release") == 0) {
        sl_view_release(client, &held);
        (void)printf("released\n");
    } else if (strcmp(line, "fork") == 0) {
        (void)printf("%d\n", child_stay());
    } else if (strcmp(line, "child") == 0) {
        (void)printf("%d\n", child_close());
    } else {
        (void)printf("unknown\n");
    }
}

int main(int argc, char **argv)
{
    struct sl_error why = {0};
    char line[64], runtime[512], shm[512];
    if (argc != 5) {
        return 2;
    }
    arguments = argv;
    worker_count = (uint32_t)strtoul(argv[4], NULL, 10);
    if (worker_count > THREADS_MAX) {
        return 2;
    }
    (void)snprintf(runtime, sizeof runtime, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm, sizeof shm, "shm_dir=%s", argv[3]);
    const char *settings[] = {runtime, shm, NULL};
    options = (struct sl_client_options){
        .api_version = SLUICE_API_VERSION, .instance = argv[1], .settings = settings};
    if (sl_client_open(&options, &client, &why) != SL_OK) {
        (void)fprintf(stderr, "open: %s\n", why.text);
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)setvbuf(stdin, NULL, _IONBF, 0); /* further input is for the next program */
    for (uint32_t i = 0; i < worker_count; i++) {
        workers[i].number = i;
        workers[i].room = malloc(VALUE_BYTES_MAX);
        if (workers[i].room == NULL ||
            pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0) {
            return 2;
        }
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        answer(line);
    }
    ends = true;
    for (uint32_t i = 0; i < worker_count; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        free(workers[i].room);
    }
    sl_view_release(client, &held);
    sl_put_abort(&draft);
    sl_client_close(&client);
    return wrong == 0 ? 0 : 1;
}

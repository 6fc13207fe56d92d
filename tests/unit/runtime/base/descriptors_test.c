/* tests/unit/runtime/base/descriptors_test.c - memory passed as descriptors over a socket. */
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_descriptors.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES  108u /* of a socket's address */
#define PIECE_BYTES 4096u
#define LIFE        77u

/* Gives `count` memfds, each with its number in it; none for another life. */
struct giver {
    uint32_t count;
    _Atomic bool held;  /* it gives nothing while this is so */
    _Atomic bool is_in; /* a taker is being answered, or was */
    struct sl_descriptors_request asked;
};

static sl_err giver_give(void *context, const struct sl_descriptors_request *ask, uint32_t first,
                         struct sl_descriptors_part *out, struct sl_error *why)
{
    struct giver *giver = context;
    giver->asked = *ask;
    atomic_store(&giver->is_in, true);
    while (atomic_load(&giver->held)) {
        (void)usleep(1000);
    }
    if (ask->life != LIFE) {
        return sl_fail(why, SL_ERR_STALE, "memory at %llu has another life",
                       (unsigned long long)ask->address);
    }
    while (out->count < SL_DESCRIPTORS_BATCH && first + out->count < giver->count) {
        uint32_t number = first + out->count;
        int fd = memfd_create("piece", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_eq(ftruncate(fd, PIECE_BYTES), 0);
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
        ck_assert_int_eq(pwrite(fd, &number, sizeof(number), 0), sizeof(number));
        out->fds[out->count] = fd;
        out->lengths[out->count++] = PIECE_BYTES + number;
    }
    out->more = first + out->count < giver->count;
    return SL_OK;
}

struct taken {
    uint32_t count;
    uint32_t refuse_at; /* 0: never */
    uint64_t pause_ns;  /* for each packet */
};

static sl_err taken_take(void *context, const struct sl_descriptors_part *part,
                         struct sl_error *why)
{
    struct taken *taken = context;
    (void)usleep((useconds_t)(taken->pause_ns / SL_NS_PER_US));
    for (uint32_t i = 0; i < part->count; i++) {
        uint32_t number = UINT32_MAX;
        ck_assert_int_eq(pread(part->fds[i], &number, sizeof(number), 0), sizeof(number));
        ck_assert_uint_eq(number, taken->count);
        ck_assert_uint_eq(part->lengths[i], PIECE_BYTES + number);
        ck_assert_int_eq(fcntl(part->fds[i], F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
        ck_assert_int_eq(fcntl(part->fds[i], F_GETFD), FD_CLOEXEC);
        taken->count++;
    }
    return taken->refuse_at != 0 && taken->count >= taken->refuse_at
               ? sl_fail(why, SL_ERR_LIMIT, "enough")
               : SL_OK;
}

static uint32_t open_files(void)
{
    uint32_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count;
}

static struct sl_tmpdir directory;
static struct giver giver;
static struct sl_descriptors *server;

static void setup(void)
{
    struct sl_error why = {0};
    giver = (struct giver){.count = 3};
    sl_tmpdir_make(&directory, "/tmp");
    ck_assert_msg(sl_descriptors_serve(directory.path, 0, giver_give, &giver, &server, &why) ==
                      SL_OK,
                  "%s", why.text);
}

static void teardown(void)
{
    sl_descriptors_stop(&server);
    ck_assert_int_eq(rmdir(directory.path), 0); /* the socket was removed with it */
}

static sl_err fetch_of(uint32_t pid, uint64_t number, uint64_t life, struct taken *taken,
                       uint64_t timeout_ns, struct sl_error *why)
{
    const struct sl_descriptors_source source = {
        .runtime_dir = directory.path, .pid = pid, .number = number};
    const struct sl_descriptors_request ask = {.address = 4096, .length_bytes = 100, .life = life};
    return sl_descriptors_fetch(&source, &ask, taken_take, taken,
                                sl_deadline_ns(sl_clock_monotonic_ns(), timeout_ns), why);
}

static sl_err fetch(struct taken *taken, struct sl_error *why)
{
    return fetch_of((uint32_t)getpid(), sl_descriptors_number(server), LIFE, taken,
                    10 * SL_NS_PER_S, why);
}

static const uint32_t counts[] = {1, SL_DESCRIPTORS_BATCH, SL_DESCRIPTORS_BATCH + 1, 500};

START_TEST(descriptors_come_whole_and_in_order)
    {
        struct taken taken = {0};
        struct sl_error why = {0};
        giver.count = counts[_i];
        uint32_t before = open_files();

        ck_assert_msg(fetch(&taken, &why) == SL_OK, "%s", why.text);

        ck_assert_uint_eq(taken.count, counts[_i]);
        ck_assert_uint_eq(giver.asked.address, 4096);
        ck_assert_uint_eq(giver.asked.length_bytes, 100);
        for (uint32_t i = 0; i < 100 && open_files() != before; i++) {
            (void)usleep(10000); /* the giver closes its end after the answer */
        }
        ck_assert_uint_eq(open_files(), before);
    }
END_TEST

START_TEST(what_the_giver_says_comes_with_its_text)
    {
        struct taken taken = {0};
        struct sl_error why = {0};

        ck_assert_int_eq(fetch_of((uint32_t)getpid(), sl_descriptors_number(server), LIFE + 1,
                                  &taken, 10 * SL_NS_PER_S, &why),
                         SL_ERR_STALE);

        ck_assert_str_eq(why.text, "memory at 4096 has another life");
        ck_assert_uint_eq(taken.count, 0);
    }
END_TEST

START_TEST(what_the_taker_refuses_ends_the_fetch)
    {
        struct taken taken = {.refuse_at = 40};
        struct sl_error why = {0};
        giver.count = 200;

        ck_assert_int_eq(fetch(&taken, &why), SL_ERR_LIMIT);

        ck_assert_uint_eq(taken.count, 64);
        taken = (struct taken){0};
        ck_assert_int_eq(fetch(&taken, &why), SL_OK); /* the giver continues */
        ck_assert_uint_eq(taken.count, 200);
    }
END_TEST

START_TEST(nobody_at_the_socket_is_not_found)
    {
        struct taken taken = {0};
        struct sl_error why = {0};

        ck_assert_int_eq(fetch_of((uint32_t)getpid(), sl_descriptors_number(server) + 1, LIFE,
                                  &taken, 10 * SL_NS_PER_S, &why),
                         SL_ERR_NOT_FOUND);
        ck_assert_int_eq(fetch_of(0x7ffffff0, sl_descriptors_number(server), LIFE, &taken,
                                  10 * SL_NS_PER_S, &why),
                         SL_ERR_NOT_FOUND);
    }
END_TEST

START_TEST(a_giver_that_hangs_costs_the_deadline)
    {
        struct taken taken = {0};
        struct sl_error why = {0};
        atomic_store(&giver.held, true);

        ck_assert_int_eq(fetch_of((uint32_t)getpid(), sl_descriptors_number(server), LIFE, &taken,
                                  30 * SL_NS_PER_MS, &why),
                         SL_ERR_TIMEOUT);

        ck_assert_uint_eq(taken.count, 0);
        atomic_store(&giver.held, false);
    }
END_TEST

/* The next packet is always ready: there is never a wait. */
START_TEST(a_taker_that_is_slow_costs_the_deadline)
    {
        struct taken taken = {.pause_ns = 20 * SL_NS_PER_MS};
        struct sl_error why = {0};
        giver.count = 20 * SL_DESCRIPTORS_BATCH;

        ck_assert_int_eq(fetch_of((uint32_t)getpid(), sl_descriptors_number(server), LIFE, &taken,
                                  50 * SL_NS_PER_MS, &why),
                         SL_ERR_TIMEOUT);

        ck_assert_uint_lt(taken.count, giver.count);
    }
END_TEST

START_TEST(packets_that_are_no_question_are_left)
    {
        struct taken taken = {0};
        struct sl_error why = {0};
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/memory.%d.%016llx",
                       directory.path, getpid(), (unsigned long long)sl_descriptors_number(server));
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        ck_assert_int_eq(send(fd, "give me all", 11, 0), 11);
        char byte;
        ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
        (void)close(fd);

        ck_assert_int_eq(fetch(&taken, &why), SL_OK);
    }
END_TEST

/* The giver may not be traced, as in a container or under Yama, and is killed then. */
START_TEST(no_right_to_trace_the_giver_is_needed)
    {
        struct taken taken = {0};
        struct sl_error why = {0};
        uint64_t number = 0;
        int ends[2];
        giver = (struct giver){.count = 3};
        sl_tmpdir_make(&directory, "/tmp");
        ck_assert_int_eq(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            struct sl_descriptors *own = NULL;
            if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
                sl_descriptors_serve(directory.path, 0, giver_give, &giver, &own, NULL) != SL_OK) {
                _exit(1);
            }
            number = sl_descriptors_number(own);
            _exit(write(ends[1], &number, sizeof(number)) == sizeof(number) ? pause() : 1);
        }
        ck_assert_int_eq(read(ends[0], &number, sizeof(number)), sizeof(number));

        ck_assert_msg(fetch_of((uint32_t)child, number, LIFE, &taken, 10 * SL_NS_PER_S, &why) ==
                          SL_OK,
                      "%s", why.text);

        ck_assert_uint_eq(taken.count, 3);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        ck_assert_int_eq(fetch_of((uint32_t)child, number, LIFE, &taken, 10 * SL_NS_PER_S, &why),
                         SL_ERR_NOT_FOUND);
        /* Another giver removes the sockets of dead ones, the next one none of living ones. */
        struct sl_descriptors *next = NULL;
        ck_assert_int_eq(sl_descriptors_serve(directory.path, 0, giver_give, &giver, &server, &why),
                         SL_OK);
        ck_assert_int_eq(sl_descriptors_serve(directory.path, 0, giver_give, &giver, &next, &why),
                         SL_OK);
        taken = (struct taken){0};
        ck_assert_int_eq(fetch(&taken, &why), SL_OK);
        sl_descriptors_stop(&next);
        teardown();
        (void)close(ends[0]);
        (void)close(ends[1]);
    }
END_TEST

/* A socket under the name that it has until its owner listens. */
static void half_made(pid_t pid, char path[PATH_BYTES])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(path, PATH_BYTES, "%s/memory-%d.%016x", directory.path, (int)pid, 7u);
    memcpy(address.sun_path, path, PATH_BYTES);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    (void)close(fd);
}

START_TEST(a_socket_that_a_killed_process_had_not_finished_goes)
    {
        char dead[PATH_BYTES], living[PATH_BYTES], other[PATH_BYTES];
        struct sl_descriptors *next = NULL;
        pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        half_made(child, dead);
        half_made(getpid(), living);
        (void)snprintf(other, sizeof(other), "%s/memory-of-somebody", directory.path);
        ck_assert_int_eq(close(creat(other, 0600)), 0);

        ck_assert_int_eq(sl_descriptors_serve(directory.path, 0, giver_give, &giver, &next, NULL),
                         SL_OK);

        ck_assert_int_ne(access(dead, F_OK), 0);
        ck_assert_int_eq(unlink(living), 0);
        ck_assert_int_eq(unlink(other), 0);
        sl_descriptors_stop(&next);
    }
END_TEST

/* Ranks of an engine start at the same time: each looks for sockets that dead processes left. */
static void *starts_and_stops(void *count_missing)
{
    struct giver one = {.count = 1};
    for (uint32_t i = 0; i < 300; i++) {
        struct sl_error why = {0};
        struct sl_descriptors *mine = NULL;
        struct taken taken = {0};
        ck_assert_msg(sl_descriptors_serve(directory.path, 0, giver_give, &one, &mine, &why) ==
                          SL_OK,
                      "%s", why.text);
        *(uint32_t *)count_missing +=
            fetch_of((uint32_t)getpid(), sl_descriptors_number(mine), LIFE, &taken,
                     10 * SL_NS_PER_S, &why) == SL_ERR_NOT_FOUND;
        sl_descriptors_stop(&mine);
    }
    return NULL;
}

START_TEST(a_socket_that_is_just_made_is_no_leftover)
    {
        uint32_t missing[3] = {0};
        pthread_t threads[SL_COUNT(missing)];
        for (size_t i = 0; i < SL_COUNT(missing); i++) {
            ck_assert_int_eq(pthread_create(&threads[i], NULL, starts_and_stops, &missing[i]), 0);
        }
        for (size_t i = 0; i < SL_COUNT(missing); i++) {
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        }

        ck_assert_uint_eq(missing[0] + missing[1] + missing[2], 0);
    }
END_TEST

static void *fetches(void *result)
{
    struct sl_error why = {0};
    struct taken taken = {0};
    *(sl_err *)result = fetch(&taken, &why);
    return NULL;
}

START_TEST(a_file_of_another_program_is_no_leftover)
    {
        static const char *const names[] = {"memory.txt", "memory.12.34", "memory-99999999.7"};
        struct sl_descriptors *next = NULL;
        struct sl_error why = {0};
        char path[PATH_BYTES];
        for (size_t i = 0; i < SL_COUNT(names); i++) {
            sl_tmpdir_at(&directory, names[i], path, sizeof(path));
            sl_tmpdir_write(path, "mine", 4);
        }

        ck_assert_int_eq(sl_descriptors_serve(directory.path, 0, giver_give, &giver, &next, &why),
                         SL_OK);
        for (size_t i = 0; i < SL_COUNT(names); i++) {
            sl_tmpdir_at(&directory, names[i], path, sizeof(path));
            ck_assert_msg(unlink(path) == 0, "%s", names[i]);
        }
        sl_descriptors_stop(&next);
    }
END_TEST

/* A taker that has disconnected is still in the queue of a busy giver. */
START_TEST(a_giver_with_a_queue_is_waited_for)
    {
        pthread_t thread;
        sl_err first = SL_ERR_INTERNAL;
        struct taken taken = {0};
        struct sl_error why = {0};
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        bool full = false;
        atomic_store(&giver.held, true);
        (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/memory.%u.%016llx",
                       directory.path, (unsigned)getpid(),
                       (unsigned long long)sl_descriptors_number(server));
        ck_assert_int_eq(pthread_create(&thread, NULL, fetches, &first), 0);
        while (!atomic_load(&giver.is_in)) {
            (void)usleep(1000);
        }
        for (uint32_t i = 0; i < 1000 && !full; i++) {
            int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            full = connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0;
            (void)close(fd);
        }
        ck_assert(full);

        ck_assert_int_eq(fetch_of((uint32_t)getpid(), sl_descriptors_number(server), LIFE, &taken,
                                  10 * SL_NS_PER_MS, &why),
                         SL_ERR_TIMEOUT);
        atomic_store(&giver.held, false);
        ck_assert_msg(fetch(&taken, &why) == SL_OK, "%s", why.text);

        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_int_eq(first, SL_OK);
    }
END_TEST

START_TEST(a_directory_that_is_too_long_is_refused)
    {
        struct sl_error why = {0};
        struct sl_descriptors *other = NULL;
        char path[200];
        memset(path, 'x', sizeof(path) - 1);
        path[0] = '/';
        path[sizeof(path) - 1] = '\0';

        ck_assert_int_eq(sl_descriptors_serve(path, 0, giver_give, &giver, &other, &why),
                         SL_ERR_INVALID);
        ck_assert_int_eq(
            sl_descriptors_serve("/nowhere-at-all", 0, giver_give, &giver, &other, &why),
            SL_ERR_NOT_FOUND);
        ck_assert_ptr_null(other);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("descriptors");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_loop_test(all, descriptors_come_whole_and_in_order, 0, SL_COUNT(counts));
    tcase_add_test(all, what_the_giver_says_comes_with_its_text);
    tcase_add_test(all, what_the_taker_refuses_ends_the_fetch);
    tcase_add_test(all, nobody_at_the_socket_is_not_found);
    tcase_add_test(all, a_giver_that_hangs_costs_the_deadline);
    tcase_add_test(all, a_taker_that_is_slow_costs_the_deadline);
    tcase_add_test(all, packets_that_are_no_question_are_left);
    tcase_add_test(all, a_socket_that_is_just_made_is_no_leftover);
    tcase_add_test(all, a_file_of_another_program_is_no_leftover);
    tcase_add_test(all, a_socket_that_a_killed_process_had_not_finished_goes);
    tcase_add_test(all, a_giver_with_a_queue_is_waited_for);
    tcase_add_test(all, a_directory_that_is_too_long_is_refused);
    suite_add_tcase(suite, all);
    TCase *forked = tcase_create("forked"); /* from one thread */
    tcase_add_test(forked, no_right_to_trace_the_giver_is_needed);
    suite_add_tcase(suite, forked);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

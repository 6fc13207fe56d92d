/* tests/unit/copier_test.c - a process that copies from and to its own memory for another: what it
 * copies, what it refuses, and how both sides end. Copier and asker are mostly one process. */
#include "runtime/sl_clock.h"
#include "runtime/sl_copier.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_BYTES (4 * SL_MIB)
#define DATA_BYTES   (2 * SL_MIB)
#define RUNS         1000u
#define WAIT_NS      (10 * SL_NS_PER_S)

static struct sl_tmpdir directory;
static struct sl_copier *copier;
static struct sl_copier_link *asking;
static unsigned char *memory; /* the first and the last 64 KiB are no range */
static const struct sl_copier_room room = {.data_bytes = DATA_BYTES, .run_count = RUNS};

static uint64_t random_next(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    uint64_t z = *seed;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t address(uint64_t at)
{
    return (uintptr_t)memory + at;
}

static void setup(void)
{
    struct sl_error why = {0};
    sl_tmpdir_make(&directory, "/tmp");
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(memory != MAP_FAILED);
    for (size_t i = 0; i < MEMORY_BYTES; i++) {
        memory[i] = (unsigned char)(i * 131 + i / 4099);
    }
    /* Out of order, and two that meet. */
    const struct sl_copier_range ranges[] = {
        {address(2 * SL_MIB), 2 * SL_MIB - 65536},
        {address(65536), SL_MIB - 65536},
        {address(SL_MIB), SL_MIB - 4096},
    };
    ck_assert_msg(sl_copier_start(directory.path, ranges, SL_COUNT(ranges), &copier, &why) == SL_OK,
                  "%s", why.text);
    ck_assert_msg(sl_copier_connect(directory.path, sl_proc_id_self(), sl_copier_number(copier),
                                    &room, &asking, &why) == SL_OK,
                  "%s", why.text);
}

static void teardown(void)
{
    sl_copier_disconnect(&asking);
    sl_copier_stop(&copier);
    (void)munmap(memory, MEMORY_BYTES);
    sl_tmpdir_remove(&directory);
}

/* Waits for the end of the request. */
static sl_err ended(struct sl_error *why)
{
    uint64_t end_ns = sl_clock_monotonic_ns() + WAIT_NS;
    bool over = false;
    for (;;) {
        sl_err err = sl_copier_poll(asking, &over, why);
        if (over) {
            return err;
        }
        ck_assert_int_eq(err, SL_OK);
        ck_assert_uint_lt(sl_clock_monotonic_ns(), end_ns);
        (void)usleep(50);
    }
}

static sl_err asked(uint32_t run_count, bool to_process, struct sl_error *why)
{
    sl_err err = sl_copier_ask(asking, run_count, to_process, why);
    return err == SL_OK ? ended(why) : err;
}

START_TEST(random_runs_equal_the_plain_loop)
    {
        struct sl_error why = {0};
        uint64_t seed = 7 + (uint64_t)_i;
        unsigned char *copy = malloc(MEMORY_BYTES), *flat = malloc(DATA_BYTES);
        memcpy(copy, memory, MEMORY_BYTES);
        for (unsigned round = 0; round < 20; round++) {
            bool to_process = round % 2 == 1;
            uint64_t used = 0, step = random_next(&seed) % 2 == 0 ? 3000 : 700000;
            uint32_t count = 0;
            for (size_t i = 0; i < DATA_BYTES; i++) {
                flat[i] = sl_copier_data(asking)[i] = (unsigned char)random_next(&seed);
            }
            while (count < RUNS) {
                uint64_t length = 1 + random_next(&seed) % step;
                uint64_t at = 65536 + random_next(&seed) % (2 * SL_MIB - 65536 - 4096 - length);
                if (used + length > DATA_BYTES) {
                    break;
                }
                sl_copier_runs(asking)[count++] =
                    (struct sl_copier_run){.address = address(at), .length_bytes = length};
                memcpy(to_process ? copy + at : flat + used, to_process ? flat + used : copy + at,
                       length);
                used += length;
            }

            ck_assert_msg(asked(count, to_process, &why) == SL_OK, "%s", why.text);

            ck_assert_int_eq(memcmp(memory, copy, MEMORY_BYTES), 0);
            ck_assert_int_eq(memcmp(sl_copier_data(asking), flat, DATA_BYTES), 0);
        }
        free(copy);
        free(flat);
    }
END_TEST

static const struct {
    uint64_t at, length;
} strangers[] = {
    {0, 1},
    {65535, 2},
    {2 * SL_MIB - 4096, 1}, /* between two ranges */
    {2 * SL_MIB - 4097, 2},
    {4 * SL_MIB - 65536, 1},
    {4 * SL_MIB - 65537, 2},
    {65536, UINT64_MAX},
    {UINT64_MAX - 65536, 65536},
};

START_TEST(memory_that_is_not_registered_is_not_touched)
    {
        struct sl_error why = {0};
        bool to_process = _i % 2 == 1;
        unsigned char before = memory[100000];
        memset(sl_copier_data(asking), 0x77, DATA_BYTES);
        sl_copier_runs(asking)[0] = (struct sl_copier_run){.address = address(70000), 1};
        sl_copier_runs(asking)[1] = (struct sl_copier_run){
            .address = address(strangers[_i / 2].at), .length_bytes = strangers[_i / 2].length};
        sl_copier_runs(asking)[2] = (struct sl_copier_run){.address = address(100000), 1};

        sl_err err = asked(3, to_process, &why);

        ck_assert_int_eq(err, SL_ERR_STALE);
        ck_assert_msg(strstr(why.text, "run 1, ") != NULL, "%s", why.text);
        ck_assert_uint_eq(memory[100000], before);
        ck_assert_uint_eq(sl_copier_data(asking)[2], 0x77);
        ck_assert_int_eq(asked(1, to_process, &why), SL_OK); /* the link is none the worse */
    }
END_TEST

START_TEST(more_than_the_area_holds_is_refused)
    {
        struct sl_error why = {0};
        sl_copier_runs(asking)[0] = (struct sl_copier_run){address(2 * SL_MIB), SL_MIB};
        sl_copier_runs(asking)[1] = (struct sl_copier_run){address(2 * SL_MIB), SL_MIB};
        sl_copier_runs(asking)[2] = (struct sl_copier_run){address(70000), 1};
        ck_assert_int_eq(asked(2, false, &why), SL_OK);

        ck_assert_int_eq(asked(3, false, &why), SL_ERR_STALE);
        ck_assert_int_eq(asked(RUNS + 1, false, &why), SL_ERR_PROTOCOL);
    }
END_TEST

START_TEST(what_was_cancelled_is_not_begun)
    {
        struct sl_error why = {0};
        unsigned char before = memory[70000];
        sl_copier_data(asking)[0] = (unsigned char)~before;
        sl_copier_runs(asking)[0] = (struct sl_copier_run){.address = address(70000), 1};
        /* The number of the next request: as if it had waited there for long. */
        ck_assert_int_eq(asked(0, true, &why), SL_OK);
        ck_assert_int_eq(sl_copier_ask(asking, 0, true, &why), SL_OK);
        sl_copier_cancel(asking);
        (void)ended(&why);
        ck_assert_int_eq(asked(1, false, &why), SL_OK); /* those behind it are as before */
        sl_copier_data(asking)[0] = (unsigned char)~before;

        ck_assert_int_eq(sl_copier_ask(asking, 1, true, &why), SL_OK);
        ck_assert_int_eq(ended(&why), SL_OK);

        ck_assert_uint_eq(memory[70000], (unsigned char)~before);
    }
END_TEST

/* ---- who is who ---- */

START_TEST(another_process_than_the_one_meant_is_not_asked)
    {
        struct sl_error why = {0};
        struct sl_copier_link *other = NULL;
        struct sl_proc_id later = sl_proc_id_self(), parent = {0};
        later.start_time++;
        ck_assert_int_eq(sl_proc_id_of((uint32_t)getppid(), &parent, NULL), SL_OK);

        ck_assert_int_eq(
            sl_copier_connect(directory.path, later, sl_copier_number(copier), &room, &other, &why),
            SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_copier_connect(directory.path, parent, sl_copier_number(copier), &room,
                                           &other, &why),
                         SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_copier_connect(directory.path, sl_proc_id_self(),
                                           sl_copier_number(copier) + 1, &room, &other, &why),
                         SL_ERR_NOT_FOUND);
        ck_assert_ptr_null(other);
    }
END_TEST

/* An area that could shrink under the copier would end its process. */
START_TEST(an_area_that_may_shrink_is_refused)
    {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        struct {
            char magic[8];
            uint64_t data_bytes;
            uint32_t run_count, reserved;
        } hello = {
            .magic = {'s', 'l', 'c', 'p', 'h', 'e', 'l', '1'}, .data_bytes = 4096, .run_count = 1};
        union {
            char bytes[CMSG_SPACE(2 * sizeof(int))];
            struct cmsghdr align;
        } control = {.bytes = {0}};
        struct iovec bytes = {.iov_base = &hello, .iov_len = sizeof(hello)};
        struct msghdr message = {.msg_iov = &bytes,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof(control.bytes)};
        int area = memfd_create("area", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_eq(ftruncate(area, SL_MIB), 0);
        bool sealed = _i == 1;
        ck_assert(!sealed || fcntl(area, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s/copier.%u.%016llx", directory.path,
                       (unsigned)getpid(), (unsigned long long)sl_copier_number(copier));
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        const int fds[2] = {area, area};
        head->cmsg_len = CMSG_LEN(sizeof(fds));
        memcpy(CMSG_DATA(head), fds, sizeof(fds));

        ck_assert_int_eq(sendmsg(fd, &message, 0), (int)sizeof(hello));

        struct pollfd polled = {.fd = fd, .events = POLLIN};
        int ready = poll(&polled, 1, sealed ? 100 : 5000);
        ck_assert_int_eq(ready, sealed ? 0 : 1);
        ck_assert(sealed || (polled.revents & POLLHUP) != 0);
        (void)close(fd);
        (void)close(area);
    }
END_TEST

START_TEST(what_cannot_be_served_is_refused)
    {
        struct sl_error why = {0};
        struct sl_copier *other = NULL;
        struct sl_copier_range none = {address(0), 0}, over = {UINTPTR_MAX - 5, 10},
                               one = {address(0), 1};
        struct sl_copier_room large = {.data_bytes = SL_COPIER_AREA_MAX + 1, .run_count = 1};
        struct sl_copier_link *asker = NULL;

        ck_assert_int_eq(sl_copier_start(directory.path, &one, 0, &other, &why), SL_ERR_INVALID);
        ck_assert_int_eq(sl_copier_start(directory.path, &none, 1, &other, &why), SL_ERR_INVALID);
        ck_assert_int_eq(sl_copier_start(directory.path, &over, 1, &other, &why), SL_ERR_INVALID);
        ck_assert_int_eq(
            sl_copier_start(directory.path, &one, SL_COPIER_RANGES_MAX + 1, &other, &why),
            SL_ERR_LIMIT);
        ck_assert_int_eq(sl_copier_start("/nowhere/at/all", &one, 1, &other, &why),
                         SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_copier_connect(directory.path, sl_proc_id_self(),
                                           sl_copier_number(copier), &large, &asker, &why),
                         SL_ERR_LIMIT);
        ck_assert_ptr_null(other);
        ck_assert_ptr_null(asker);
    }
END_TEST

/* ---- ends ---- */

START_TEST(a_copier_that_stops_is_gone_for_those_who_ask)
    {
        struct sl_error why = {0};
        sl_copier_runs(asking)[0] = (struct sl_copier_run){.address = address(70000), 1};
        ck_assert_int_eq(asked(1, false, &why), SL_OK);

        sl_copier_stop(&copier);

        ck_assert_int_eq(asked(1, false, &why), SL_ERR_NOT_FOUND);
        char path[256];
        (void)snprintf(path, sizeof(path), "ls %s | wc -l", directory.path);
        FILE *listing = popen(path, "r");
        ck_assert_ptr_nonnull(fgets(path, sizeof(path), listing));
        ck_assert_int_eq(atoi(path), 0); /* no socket is left */
        (void)pclose(listing);
    }
END_TEST

START_TEST(askers_that_went_make_room_for_others)
    {
        struct sl_error why = {0};
        for (unsigned i = 0; i < 40; i++) {
            sl_copier_disconnect(&asking);
            ck_assert_msg(sl_copier_connect(directory.path, sl_proc_id_self(),
                                            sl_copier_number(copier), &room, &asking,
                                            &why) == SL_OK,
                          "%s", why.text);
            sl_copier_runs(asking)[0] = (struct sl_copier_run){.address = address(70000 + i), 1};
            ck_assert_msg(asked(1, false, &why) == SL_OK, "round %u: %s", i, why.text);
            ck_assert_uint_eq(sl_copier_data(asking)[0], memory[70000 + i]);
        }
    }
END_TEST

/* All ranks of an engine may be one process. */
START_TEST(as_many_ask_as_an_engine_has_ranks)
    {
        struct sl_error why = {0};
        struct sl_copier_link *ranks[64] = {NULL}, *kept = asking;
        for (unsigned i = 0; i < SL_COUNT(ranks); i++) {
            ck_assert_msg(sl_copier_connect(directory.path, sl_proc_id_self(),
                                            sl_copier_number(copier), &room, &ranks[i],
                                            &why) == SL_OK,
                          "rank %u: %s", i, why.text);
        }

        for (unsigned i = 0; i < SL_COUNT(ranks); i++) {
            asking = ranks[i];
            sl_copier_runs(asking)[0] = (struct sl_copier_run){.address = address(70000 + i), 1};
            ck_assert_msg(asked(1, false, &why) == SL_OK, "rank %u: %s", i, why.text);
            ck_assert_uint_eq(sl_copier_data(asking)[0], memory[70000 + i]);
        }

        for (unsigned i = 0; i < SL_COUNT(ranks); i++) {
            sl_copier_disconnect(&ranks[i]);
        }
        asking = kept;
    }
END_TEST

/* A process of its own that has the memory, in place of this one. */
static pid_t other_start(uint64_t *number)
{
    int told[2];
    sl_copier_disconnect(&asking);
    sl_copier_stop(&copier); /* a fork takes no threads along */
    ck_assert_int_eq(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct sl_copier_range range = {address(0), MEMORY_BYTES};
        struct sl_copier *own = NULL;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        uint64_t its = 0;
        if (sl_copier_start(directory.path, &range, 1, &own, NULL) == SL_OK) {
            its = sl_copier_number(own);
        }
        if (write(told[1], &its, sizeof(its)) == (ssize_t)sizeof(its)) {
            for (;;) {
                (void)pause();
            }
        }
        _exit(1);
    }
    ck_assert_int_eq(read(told[0], number, sizeof(*number)), (int)sizeof(*number));
    ck_assert_uint_ne(*number, 0);
    (void)close(told[0]);
    (void)close(told[1]);
    return pid;
}

static void other_stop(pid_t pid)
{
    int status = 0;
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    ck_assert(WIFSTOPPED(status));
}

static void other_ask(pid_t pid, uint64_t number)
{
    struct sl_error why = {0};
    struct sl_proc_id id = {0};
    sl_copier_disconnect(&asking);
    ck_assert_int_eq(sl_proc_id_of((uint32_t)pid, &id, NULL), SL_OK);
    ck_assert_msg(sl_copier_connect(directory.path, id, number, &room, &asking, &why) == SL_OK,
                  "%s", why.text);
    sl_copier_runs(asking)[0] = (struct sl_copier_run){address(0), SL_MIB};
}

START_TEST(a_stopped_process_keeps_nobody_waiting_and_is_cancelled_when_it_goes_on)
    {
        struct sl_error why = {0};
        uint64_t number = 0;
        bool over = true;
        pid_t pid = other_start(&number);
        other_stop(pid);
        other_ask(pid, number); /* also the connection waits for nobody */
        memset(sl_copier_data(asking), 0xee, SL_MIB);
        unsigned char *before = malloc(MEMORY_BYTES);
        memcpy(before, memory, MEMORY_BYTES);

        ck_assert_int_eq(sl_copier_ask(asking, 1, true, &why), SL_OK);
        for (unsigned i = 0; i < 20; i++) {
            ck_assert_int_eq(sl_copier_poll(asking, &over, &why), SL_OK);
            ck_assert(!over);
            (void)usleep(1000);
        }
        sl_copier_cancel(asking);
        ck_assert_int_eq(kill(pid, SIGCONT), 0);

        ck_assert_int_eq(ended(&why), SL_ERR_CANCELLED);
        ck_assert_int_eq(memcmp(memory, before, MEMORY_BYTES), 0);
        ck_assert_int_eq(asked(1, false, &why), SL_OK);
        ck_assert_int_eq(memcmp(sl_copier_data(asking), before, SL_MIB), 0);
        free(before);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    }
END_TEST

/* Whenever it was stopped: what was taken back is settled, and stays so when it goes on. */
START_TEST(a_request_that_was_taken_back_writes_no_more)
    {
        struct sl_error why = {0};
        uint64_t number = 0, end_ns = sl_clock_monotonic_ns() + WAIT_NS;
        pid_t pid = other_start(&number);
        other_ask(pid, number);
        unsigned char *before = malloc(MEMORY_BYTES);
        for (uint32_t i = 0; i < RUNS; i++) {
            sl_copier_runs(asking)[i] = (struct sl_copier_run){address(4000 * i), 2000};
        }
        ck_assert_int_eq(asked(1, false, &why), SL_OK); /* it knows us */
        memset(sl_copier_data(asking), 0xee, DATA_BYTES);

        ck_assert_int_eq(sl_copier_ask(asking, RUNS, true, &why), SL_OK);
        for (uint64_t until_ns = sl_clock_monotonic_ns() + (uint64_t)_i * 10 * SL_NS_PER_US;
             sl_clock_monotonic_ns() < until_ns;) {
        }
        if (_i % 4 != 0) {
            other_stop(pid);
        }
        sl_copier_revoke(asking);
        while (!sl_copier_settled(asking)) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), end_ns);
        }
        memcpy(before, memory, MEMORY_BYTES);
        ck_assert_int_eq(kill(pid, SIGCONT), 0);
        (void)usleep(3000);

        ck_assert_int_eq(memcmp(memory, before, MEMORY_BYTES), 0);
        other_ask(pid, number); /* and another link works */
        sl_copier_runs(asking)[0] = (struct sl_copier_run){address(0), SL_MIB};
        ck_assert_int_eq(asked(1, false, &why), SL_OK);
        ck_assert_int_eq(memcmp(sl_copier_data(asking), memory, SL_MIB), 0);
        free(before);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    }
END_TEST

/* What was registered may be unmapped all the same. */
START_TEST(memory_that_was_unmapped_is_an_error)
    {
        struct sl_error why = {0};
        ck_assert_int_eq(munmap(memory + SL_MIB, 65536), 0);
        sl_copier_runs(asking)[0] = (struct sl_copier_run){address(SL_MIB), 4096};

        ck_assert_int_eq(asked(1, _i == 0, &why), SL_ERR_STALE);

        ck_assert_msg(strstr(why.text, "is gone") != NULL, "%s", why.text);
        sl_copier_runs(asking)[0] = (struct sl_copier_run){address(70000), 1};
        ck_assert_int_eq(asked(1, _i == 0, &why), SL_OK);
    }
END_TEST

START_TEST(a_killed_process_ends_the_request)
    {
        struct sl_error why = {0};
        uint64_t number = 0;
        pid_t pid = other_start(&number);
        other_ask(pid, number);
        other_stop(pid);
        ck_assert_int_eq(sl_copier_ask(asking, 1, _i == 0, &why), SL_OK);

        ck_assert_int_eq(kill(pid, SIGKILL), 0);

        ck_assert_int_eq(ended(&why), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("copier");
    TCase *cases = tcase_create("copier");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, random_runs_equal_the_plain_loop, 0, 4);
    tcase_add_loop_test(cases, memory_that_is_not_registered_is_not_touched, 0,
                        2 * SL_COUNT(strangers));
    tcase_add_test(cases, more_than_the_area_holds_is_refused);
    tcase_add_test(cases, what_was_cancelled_is_not_begun);
    tcase_add_test(cases, another_process_than_the_one_meant_is_not_asked);
    tcase_add_loop_test(cases, an_area_that_may_shrink_is_refused, 0, 2);
    tcase_add_test(cases, what_cannot_be_served_is_refused);
    tcase_add_test(cases, a_copier_that_stops_is_gone_for_those_who_ask);
    tcase_add_test(cases, askers_that_went_make_room_for_others);
    tcase_add_test(cases, as_many_ask_as_an_engine_has_ranks);
    tcase_add_test(cases, a_stopped_process_keeps_nobody_waiting_and_is_cancelled_when_it_goes_on);
    tcase_add_loop_test(cases, a_request_that_was_taken_back_writes_no_more, 0, 60);
    tcase_add_loop_test(cases, memory_that_was_unmapped_is_an_error, 0, 2);
    tcase_add_loop_test(cases, a_killed_process_ends_the_request, 0, 2);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

/* tests/unit/mooncake_join_test.c - nodes that join a master: who knows the secret, who does not,
 * and who says something else. */
#include "client/mooncake/daemons/join.h"

#include "ipc/sl_curve.h"
#include "runtime/sl_clock.h"
#include "tests/support/tmpdir.h"

#include <arpa/inet.h>
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "a secret of some length"

/* A master that serves connections one after the other until it is closed. */
struct master {
    struct mc_join_server server;
    struct mc_members *members;
    int listen_fd;
    uint16_t port;
    pthread_t thread;
};

static struct sl_tmpdir base;

static void *master_run(void *context)
{
    struct master *master = context;
    for (;;) {
        bool changed = false;
        int fd = accept(master->listen_fd, NULL, NULL);
        if (fd < 0) {
            return NULL;
        }
        mc_join_serve(fd, &master->server, NULL, NULL, &changed);
        close(fd);
    }
}

static struct mc_members *members_open(const char *name)
{
    char directory[128];
    struct mc_members *members = NULL;
    struct sl_error why = {0};
    ck_assert_msg(mc_members_open(sl_tmpdir_at(&base, name, directory, sizeof directory), &members,
                                  &why) == SL_OK,
                  "%s", why.text);
    return members;
}

static void master_open(struct master *master, const char *secret)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t at_bytes = sizeof at;
    master->members = members_open("master");
    master->server = (struct mc_join_server){.instance = "mooncake-1",
                                             .secret = secret,
                                             .members = master->members,
                                             .control_port = 7000};
    master->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(master->listen_fd, (struct sockaddr *)&at, at_bytes), 0);
    ck_assert_int_eq(listen(master->listen_fd, 16), 0);
    ck_assert_int_eq(getsockname(master->listen_fd, (struct sockaddr *)&at, &at_bytes), 0);
    master->port = ntohs(at.sin_port);
    ck_assert_int_eq(pthread_create(&master->thread, NULL, master_run, master), 0);
}

static void master_close(struct master *master)
{
    (void)shutdown(master->listen_fd, SHUT_RDWR);
    ck_assert_int_eq(pthread_join(master->thread, NULL), 0);
    close(master->listen_fd);
    mc_members_close(&master->members);
}

static sl_err join(const struct master *master, struct mc_members *members, const char *secret,
                   uint16_t control_port, struct sl_error *why)
{
    char ip[64];
    bool changed = false;
    const struct mc_join ask = {.host = "127.0.0.1",
                                .port = master->port,
                                .secret = secret,
                                .members = members,
                                .control_port = control_port,
                                .timeout_ns = 20 * SL_NS_PER_S};
    sl_err err = mc_join_ask(&ask, ip, &changed, why);
    ck_assert(err != SL_OK || strcmp(ip, "127.0.0.1") == 0);
    return err;
}

static void setup(void)
{
    sl_tmpdir_make(&base, "/tmp");
}

static void teardown(void)
{
    sl_tmpdir_remove(&base);
}

static bool knows(struct mc_members *members, const struct mc_members *other, const char *control)
{
    struct mc_member list[MC_MEMBERS_MAX];
    char key[SL_CURVE_TEXT_BYTES];
    uint32_t count = mc_members_list(members, list);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, mc_members_name(other)) == 0) {
            ck_assert_str_eq(list[i].key, mc_members_key(other));
            ck_assert_str_eq(list[i].control, control);
            ck_assert_int_eq(
                sl_curve_load_public(mc_members_directory(members), list[i].name, key, NULL),
                SL_OK);
            ck_assert_str_eq(key, mc_members_key(other));
            return true;
        }
    }
    return false;
}

START_TEST(nodes_that_join_know_each_other)
    {
        struct master master;
        struct sl_error why = {0};
        master_open(&master, SECRET);
        struct mc_members *b = members_open("b"), *c = members_open("c");

        ck_assert_msg(join(&master, b, SECRET, 7001, &why) == SL_OK, "%s", why.text);
        ck_assert_msg(join(&master, c, SECRET, 7002, &why) == SL_OK, "%s", why.text);
        ck_assert_msg(join(&master, b, SECRET, 7001, &why) == SL_OK, "%s",
                      why.text); /* hears of c */

        ck_assert(knows(b, master.members, "127.0.0.1:7000"));
        ck_assert(knows(b, c, "127.0.0.1:7002"));
        ck_assert(knows(c, b, "127.0.0.1:7001"));
        ck_assert(knows(master.members, b, "127.0.0.1:7001"));
        ck_assert(!knows(b, b, ""));
        mc_members_close(&b);
        b = members_open("b"); /* a later life knows them still */
        ck_assert(knows(b, c, "127.0.0.1:7002"));
        mc_members_close(&b);
        mc_members_close(&c);
        master_close(&master);
    }
END_TEST

/* As from a host that has no place for its keys and joins anew after each boot. */
static struct mc_member named(uint32_t number)
{
    struct mc_member member = {.key = "", .control = "10.0.0.1:7000"};
    (void)snprintf(member.name, sizeof member.name, "host-%06x", number);
    (void)snprintf(member.key, sizeof member.key, "%040u", number);
    return member;
}

START_TEST(names_that_say_nothing_make_room)
    {
        struct mc_members *members = members_open("members");
        struct mc_member list[MC_MEMBERS_MAX];
        struct sl_error why = {0};
        char file[192];
        for (uint32_t i = 0; i < MC_MEMBERS_MAX; i++) {
            const struct mc_member member = named(i);
            ck_assert_int_eq(mc_members_add(members, &member, NULL, &why), SL_OK);
        }
        const struct mc_member first = named(0), second = named(1), fresh = named(1000);
        ck_assert_int_eq(mc_members_add(members, &fresh, NULL, &why), SL_ERR_LIMIT);
        mc_members_set_quiet(members, 3600 * SL_NS_PER_S);
        ck_assert_int_eq(mc_members_add(members, &fresh, NULL, &why), SL_ERR_LIMIT);
        ck_assert_msg(strstr(why.text, "was heard of in the last 3600 s") != NULL, "%s", why.text);

        ck_assert_int_eq(mc_members_add(members, &first, NULL, &why), SL_OK); /* heard of again */
        mc_members_set_quiet(members, 0);
        ck_assert_int_eq(mc_members_add(members, &fresh, NULL, &why), SL_OK);

        uint32_t count = mc_members_list(members, list);
        bool has_first = false, has_second = false, has_fresh = false;
        for (uint32_t i = 0; i < count; i++) {
            has_first = has_first || strcmp(list[i].name, first.name) == 0;
            has_second = has_second || strcmp(list[i].name, second.name) == 0;
            has_fresh = has_fresh || strcmp(list[i].name, fresh.name) == 0;
        }
        ck_assert_uint_eq(count, MC_MEMBERS_MAX);
        ck_assert(has_first && !has_second && has_fresh);
        (void)snprintf(file, sizeof file, "%s/%s.pub", mc_members_directory(members), second.name);
        ck_assert_int_ne(access(file, F_OK), 0); /* its key opens nothing here any more */
        (void)snprintf(file, sizeof file, "%s/%s.pub", mc_members_directory(members), first.name);
        ck_assert_int_eq(access(file, F_OK), 0);
        mc_members_close(&members);
        members = members_open("members");
        ck_assert_uint_eq(mc_members_list(members, list), MC_MEMBERS_MAX);
        mc_members_close(&members);
    }
END_TEST

static const struct {
    const char *masters, *ours, *text;
} strangers[] = {
    {SECRET, "another secret, long enough", "another secret"},
    {NULL, SECRET, "serves its own host alone"},
};
START_TEST(who_does_not_know_the_secret_is_nobody)
    {
        struct master master;
        struct sl_error why = {0};
        struct mc_member list[MC_MEMBERS_MAX];
        master_open(&master, strangers[_i].masters);
        struct mc_members *b = members_open("b");

        ck_assert_int_eq(join(&master, b, strangers[_i].ours, 7001, &why), SL_ERR_PERMISSION);

        ck_assert_msg(strstr(why.text, strangers[_i].text) != NULL, "%s", why.text);
        ck_assert_uint_eq(mc_members_list(master.members, list), 0);
        ck_assert_uint_eq(mc_members_list(b, list), 0);
        mc_members_close(&b);
        master_close(&master);
    }
END_TEST

/* A master that says these lines and nothing else. */
#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
static const char *const foreign_lines[] = {
    "HTTP/1.1 400 Bad Request\n",
    "{}\n",
    "[1]\n",
    "{\"sluice\": 3}\n",
    "{\"sluice\": \"1\", \"challenge\": \"short\"}\n",
    ("{\"sluice\": \"1\", \"challenge\": \"" ZEROS "\"}\n{}\n"),
    ("{\"sluice\": \"1\", \"challenge\": \"" ZEROS "\"}\n{\"nodes\": \"[]\", \"mac\": \"" ZEROS
     "\"}\n"),
};
struct speaker {
    int listen_fd;
    const char *text;
};
static void *speaker_run(void *context)
{
    const struct speaker *speaker = context;
    int fd = accept(speaker->listen_fd, NULL, NULL);
    /* Line by line, as a master would: what comes too early is no answer. */
    for (const char *at = speaker->text; *at != '\0';) {
        char drop[4096];
        size_t length = strcspn(at, "\n") + 1;
        (void)send(fd, at, length, MSG_NOSIGNAL);
        at += length;
        struct pollfd one = {.fd = fd, .events = POLLIN};
        if (*at != '\0' && poll(&one, 1, 10000) > 0) {
            (void)recv(fd, drop, sizeof drop, 0);
        }
    }
    close(fd);
    return NULL;
}
START_TEST(who_is_no_master_teaches_nothing)
    {
        struct master at = {.members = NULL};
        struct mc_member list[MC_MEMBERS_MAX];
        struct sl_error why = {0};
        master_open(&at, SECRET);
        master_close(&at); /* its port is free again */
        struct sockaddr_in where = {.sin_family = AF_INET,
                                    .sin_port = htons(at.port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct speaker speaker = {.text = foreign_lines[_i]};
        int on = 1;
        pthread_t thread;
        speaker.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)setsockopt(speaker.listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        ck_assert_int_eq(bind(speaker.listen_fd, (struct sockaddr *)&where, sizeof where), 0);
        ck_assert_int_eq(listen(speaker.listen_fd, 1), 0);
        ck_assert_int_eq(pthread_create(&thread, NULL, speaker_run, &speaker), 0);
        struct mc_members *b = members_open("b");

        ck_assert_int_ne(join(&at, b, SECRET, 7001, &why), SL_OK);

        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_uint_eq(mc_members_list(b, list), 0);
        close(speaker.listen_fd);
        mc_members_close(&b);
    }
END_TEST

static int said(const struct master *master, const char *text, char *answer, size_t answer_bytes)
{
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_port = htons(master->port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&where, sizeof where), 0);
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    size_t length = 0;
    ssize_t got;
    while (length < answer_bytes - 1 &&
           (got = recv(fd, answer + length, answer_bytes - 1 - length, 0)) > 0) {
        length += (size_t)got;
    }
    answer[length] = '\0';
    close(fd);
    return (int)length;
}

static const char *const foreign_joins[] = {
    "",
    "GET / HTTP/1.1\r\n\r\n",
    "{}\n",
    "{\"join\": \"{}\", \"mac\": \"\"}\n",
    "{\"join\": 3, \"mac\": 4}\n",
    ("{\"join\": \"{}\", \"mac\": \"" ZEROS "\"}\n"),
};
START_TEST(what_is_no_join_changes_nothing)
    {
        struct master master;
        struct mc_member list[MC_MEMBERS_MAX];
        struct sl_error why = {0};
        char answer[8192];
        master_open(&master, SECRET);

        (void)said(&master, foreign_joins[_i], answer, sizeof answer);

        ck_assert_ptr_nonnull(strstr(answer, "\"sluice\""));
        ck_assert_ptr_null(strstr(answer, "nodes"));
        ck_assert_uint_eq(mc_members_list(master.members, list), 0);
        struct mc_members *b = members_open("b"); /* and it serves on */
        ck_assert_msg(join(&master, b, SECRET, 7001, &why) == SL_OK, "%s", why.text);
        mc_members_close(&b);
        master_close(&master);
    }
END_TEST

START_TEST(nesting_is_not_parsed)
    {
        enum { DEPTH = 2000 };
        struct master master;
        struct sl_error why = {0};
        char answer[8192];
        char line[2 * DEPTH + 64] = "{\"join\": ";
        size_t used = strlen(line);
        master_open(&master, SECRET);
        memset(line + used, '[', DEPTH);
        memset(line + used + DEPTH, ']', DEPTH);
        memcpy(line + used + 2 * (size_t)DEPTH, "}\n", 3);

        (void)said(&master, line, answer, sizeof answer);

        ck_assert_ptr_nonnull(strstr(answer, "\"sluice\""));
        ck_assert_ptr_null(strstr(answer, "error"));
        struct mc_members *b = members_open("b"); /* and it serves on */
        ck_assert_msg(join(&master, b, SECRET, 7001, &why) == SL_OK, "%s", why.text);
        mc_members_close(&b);
        master_close(&master);
    }
END_TEST

static const struct mc_member bad_members[] = {
    {.name = "a/b", .key = "0123456789012345678901234567890123456789", .control = ""},
    {.name = "", .key = "0123456789012345678901234567890123456789", .control = ""},
    {.name = "x", .key = "short", .control = ""},
    {.name = "x", .key = "0123456789012345678901234567890123456 \n9", .control = ""},
    {.name = "x", .key = "0123456789012345678901234567890123456789", .control = "host:1"},
    {.name = "x", .key = "0123456789012345678901234567890123456789", .control = "0.0.0.0:1"},
    {.name = "x",
     .key = "0123456789012345678901234567890123456789",
     .control = "1.2.3.4:1\ny@1.1.1.1:1"},
};
START_TEST(bad_members_are_refused)
    {
        struct mc_member list[MC_MEMBERS_MAX];
        struct sl_error why = {0};
        bool changed = true;
        struct mc_members *b = members_open("b");

        ck_assert_int_eq(mc_members_add(b, &bad_members[_i], &changed, &why), SL_ERR_INVALID);

        ck_assert(!changed);
        ck_assert_uint_eq(mc_members_list(b, list), 0);
        mc_members_close(&b);
    }
END_TEST

START_TEST(secrets_come_from_the_environment_or_a_private_file)
    {
        char path[128];
        char *secret = NULL;
        struct sl_error why = {0};
        (void)unsetenv("MOONCAKE_CLUSTER_SECRET");
        (void)unsetenv("MOONCAKE_CLUSTER_SECRET_FILE");
        ck_assert_int_eq(mc_secret_get("MOONCAKE_CLUSTER_SECRET", &secret, &why), SL_OK);
        ck_assert_ptr_null(secret);
        ck_assert_int_eq(setenv("MOONCAKE_CLUSTER_SECRET", "short", 1), 0);
        ck_assert_int_eq(mc_secret_get("MOONCAKE_CLUSTER_SECRET", &secret, &why), SL_ERR_CONFIG);
        ck_assert_int_eq(setenv("MOONCAKE_CLUSTER_SECRET", SECRET, 1), 0);
        ck_assert_int_eq(mc_secret_get("MOONCAKE_CLUSTER_SECRET", &secret, &why), SL_OK);
        ck_assert_str_eq(secret, SECRET);
        free(secret);
        ck_assert_int_eq(unsetenv("MOONCAKE_CLUSTER_SECRET"), 0);

        (void)sl_tmpdir_at(&base, "secret", path, sizeof path);
        ck_assert_int_eq(setenv("MOONCAKE_CLUSTER_SECRET_FILE", path, 1), 0);
        ck_assert_int_eq(mc_secret_get("MOONCAKE_CLUSTER_SECRET", &secret, &why),
                         SL_ERR_CONFIG); /* no such file */
        FILE *file = fopen(path, "we");
        (void)fputs(SECRET "\n", file);
        ck_assert_int_eq(fchmod(fileno(file), 0644), 0);
        (void)fclose(file);
        ck_assert_int_eq(mc_secret_get("MOONCAKE_CLUSTER_SECRET", &secret, &why),
                         SL_ERR_CONFIG); /* others may read it */
        ck_assert_int_eq(chmod(path, 0600), 0);
        ck_assert_int_eq(chmod(base.path, 0777), 0);
        ck_assert_int_eq(mc_secret_get("MOONCAKE_CLUSTER_SECRET", &secret, &why),
                         SL_ERR_CONFIG); /* others may put another one there */
        ck_assert_int_eq(chmod(base.path, 0700), 0);
        ck_assert_int_eq(mc_secret_get("MOONCAKE_CLUSTER_SECRET", &secret, &why), SL_OK);
        ck_assert_str_eq(secret, SECRET);
        free(secret);
        ck_assert_int_eq(unsetenv("MOONCAKE_CLUSTER_SECRET_FILE"), 0);
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("mooncake_join");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, nodes_that_join_know_each_other);
    tcase_add_test(tests, names_that_say_nothing_make_room);
    tcase_add_loop_test(tests, who_does_not_know_the_secret_is_nobody, 0,
                        (int)(sizeof strangers / sizeof *strangers));
    tcase_add_loop_test(tests, who_is_no_master_teaches_nothing, 0,
                        (int)(sizeof foreign_lines / sizeof *foreign_lines));
    tcase_add_loop_test(tests, what_is_no_join_changes_nothing, 0,
                        (int)(sizeof foreign_joins / sizeof *foreign_joins));
    tcase_add_test(tests, nesting_is_not_parsed);
    tcase_add_loop_test(tests, bad_members_are_refused, 0,
                        (int)(sizeof bad_members / sizeof *bad_members));
    tcase_add_test(tests, secrets_come_from_the_environment_or_a_private_file);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

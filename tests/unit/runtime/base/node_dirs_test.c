/* tests/unit/runtime/base/node_dirs_test.c - which files are a node's, and which are removed. */
#include "runtime/base/sl_node_dirs.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct sl_tmpdir tmpdir;
static char run[96], at[96];

static void set_up(void)
{
    sl_tmpdir_make(&tmpdir, "/tmp");
    sl_tmpdir_at(&tmpdir, "run", run, sizeof(run));
    sl_tmpdir_at(&tmpdir, "at", at, sizeof(at));
    ck_assert_int_eq(mkdir(run, 0700), 0);
    ck_assert_int_eq(mkdir(at, 0700), 0);
}

static void tear_down(void)
{
    sl_tmpdir_remove(&tmpdir);
}

static struct sl_node_dir_want want_of(enum sl_node_dir place)
{
    return (struct sl_node_dir_want){.place = place, .path = at, .runtime_dir = run};
}

static void file_make(const char *name)
{
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/%s", at, name);
    char *slash = strrchr(path + strlen(at) + 1, '/');
    if (slash != NULL) {
        *slash = '\0';
        ck_assert_int_eq(mkdir(path, 0700), 0);
        *slash = '/';
    }
    sl_tmpdir_write(path, "SULCESEG", 8); /* the beginning of a shm file */
}

static bool exists(const char *name)
{
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/%s", at, name);
    return access(path, F_OK) == 0;
}

/* A file in a directory that the node has claimed: whether it is known, and removed at a stop or
 * with everything. */
static const struct {
    enum sl_node_dir place;
    const char *name;
    bool known, goes, goes_with_all;
} names[] = {
    {SL_NODE_DIR_SHM, "arena.0", true, true, true},
    {SL_NODE_DIR_SHM, "index", true, true, true},
    {SL_NODE_DIR_SHM, "changes", true, true, true},
    {SL_NODE_DIR_SHM, "pins.coordinator", true, true, true},
    {SL_NODE_DIR_SHM, "pins.client.12.1", true, true, true},
    {SL_NODE_DIR_SHM, "metrics.swapper.12", true, true, true},
    {SL_NODE_DIR_SHM, ".index.12.new", true, true, true},
    {SL_NODE_DIR_SHM, "arena", false, false, false},
    {SL_NODE_DIR_SHM, "arena.0.bak", false, false, false},
    {SL_NODE_DIR_SHM, "index.html", false, false, false},
    {SL_NODE_DIR_SHM, "metrics.csv", false, false, false},
    {SL_NODE_DIR_SHM, "below/index", false, false, false},
    {SL_NODE_DIR_RUNTIME, "settings", true, true, true},
    {SL_NODE_DIR_RUNTIME, "supervisor.pid", true, true, true},
    {SL_NODE_DIR_RUNTIME, "supervisor.state.new", true, true, true},
    {SL_NODE_DIR_RUNTIME, "settings.new", true, true, true},
    {SL_NODE_DIR_RUNTIME, "start-arguments.new", true, true, true},
    {SL_NODE_DIR_RUNTIME, "rail.1", true, true, true},
    {SL_NODE_DIR_RUNTIME, "pid/swapper.0", true, true, true},
    {SL_NODE_DIR_RUNTIME, "pid/notes", true, false, false},
    {SL_NODE_DIR_RUNTIME, "program/registrar", true, true, true},
    {SL_NODE_DIR_RUNTIME, "gate.d/123", true, true, true},
    {SL_NODE_DIR_RUNTIME, "supervisor.lock", true, false, true},
    {SL_NODE_DIR_RUNTIME, "start-arguments", true, false, true},
    {SL_NODE_DIR_RUNTIME, "log/registrar.jsonl", true, false, true},
    {SL_NODE_DIR_RUNTIME, "log/notes", true, false, false},
    {SL_NODE_DIR_RUNTIME, "disk/segment.0000000001", true, false, false},
    {SL_NODE_DIR_RUNTIME, "settings.txt", false, false, false},
    {SL_NODE_DIR_RUNTIME, "supervisor", false, false, false},
    {SL_NODE_DIR_RUNTIME, "x.sock.txt", false, false, false},
    {SL_NODE_DIR_LOG, "program.old/sluice-keyer", true, true, true},
    {SL_NODE_DIR_LOG, "keyer.jsonl", true, false, true},
    {SL_NODE_DIR_LOG, "keyer.out.1", true, false, true},
    {SL_NODE_DIR_LOG, "keyer.jsonl.gz", false, false, false},
    {SL_NODE_DIR_LOG, "mine.out", false, false, false},
};

START_TEST(what_a_node_made_goes_and_nothing_else)
    {
        struct sl_node_dir_want want = want_of(names[_i].place);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        ck_assert_msg(sl_node_dir_claim(&want, &why) == SL_OK, "%s", why.text);
        if (want.place == SL_NODE_DIR_RUNTIME) {
            file_make("supervisor.lock"); /* every node leaves it */
        }
        file_make(names[_i].name);

        ck_assert_msg(sl_node_dir_scan(&want, &seen, &why) == SL_OK, "%s", why.text);
        ck_assert_int_eq(seen.foreign[0] == '\0', names[_i].known);
        ck_assert_int_eq(sl_node_dir_clear(&want, false, &why), SL_OK);
        ck_assert_int_eq(exists(names[_i].name), !names[_i].goes);
        ck_assert_int_eq(exists(SL_NODE_DIR_MARKER),
                         !names[_i].known || strcmp(names[_i].name, "pid/notes") == 0);
        if (names[_i].place == SL_NODE_DIR_LOG) {
            return; /* it is only removed with the runtime directory */
        }
        ck_assert_msg(sl_node_dir_claim(&want, &why) == SL_OK || !names[_i].known, "%s", why.text);
        ck_assert_int_eq(sl_node_dir_clear(&want, true, &why), SL_OK);
        ck_assert_int_eq(exists(names[_i].name), !names[_i].goes_with_all);
    }
END_TEST

/* Without a marker: of an earlier release, or not a node's. */
static const struct {
    enum sl_node_dir place;
    const char *names[3];
    sl_err want;
} unmarked[] = {
    {SL_NODE_DIR_RUNTIME, {"supervisor.lock", "settings", "pid/keyer"}, SL_OK},
    {SL_NODE_DIR_RUNTIME, {"registrar.lock"}, SL_OK},
    {SL_NODE_DIR_RUNTIME, {"settings"}, SL_ERR_FOREIGN},
    {SL_NODE_DIR_RUNTIME, {"pid/keyer", "program/keyer"}, SL_ERR_FOREIGN},
    {SL_NODE_DIR_RUNTIME, {"supervisor.lock", "mine.txt"}, SL_ERR_FOREIGN},
    {SL_NODE_DIR_RUNTIME, {"cache/crossover"}, SL_OK}, /* of a bench before there was a node */
    {SL_NODE_DIR_RUNTIME, {"disk/mine"}, SL_ERR_FOREIGN},
    {SL_NODE_DIR_RUNTIME, {"log/mine"}, SL_ERR_FOREIGN},
    {SL_NODE_DIR_RUNTIME, {"supervisor.lock", "disk/segment", "log/keyer.jsonl"}, SL_OK},
    {SL_NODE_DIR_SHM, {"index", "arena.0"}, SL_OK},
    {SL_NODE_DIR_SHM, {"index", "index.html"}, SL_ERR_FOREIGN},
    {SL_NODE_DIR_LOG, {"keyer.jsonl", "keyer.out"}, SL_OK},
    {SL_NODE_DIR_LOG, {"notes.txt"}, SL_OK}, /* nothing of it will be touched */
    {SL_NODE_DIR_LOG, {"keyer.jsonl", "notes.txt"}, SL_ERR_FOREIGN},
    {SL_NODE_DIR_LOG, {"metrics.out"}, SL_ERR_FOREIGN},
};

START_TEST(without_a_marker_the_names_count)
    {
        struct sl_node_dir_want want = want_of(unmarked[_i].place);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        for (size_t i = 0; i < 3 && unmarked[_i].names[i] != NULL; i++) {
            file_make(unmarked[_i].names[i]);
        }

        ck_assert_msg(sl_node_dir_check(&want, &seen, &why) == unmarked[_i].want, "%s", why.text);
        ck_assert_int_eq(sl_node_dir_clear(&want, true, &why), SL_OK);
        for (size_t i = 0; unmarked[_i].want != SL_OK && i < 3 && unmarked[_i].names[i] != NULL;
             i++) {
            ck_assert_msg(exists(unmarked[_i].names[i]), "%s", unmarked[_i].names[i]);
        }
    }
END_TEST

START_TEST(a_socket_of_another_program_stays)
    {
        static const struct {
            const char *name;
            bool goes;
        } sockets[] = {{"keyer.sock", true}, {"swapper.12.attach", true}, {"events-12.sock", true},
                       {"app.sock", false},  {"keyer.12.13.sock", false}, {"app.attach", false}};
        struct sl_node_dir_want want = want_of(SL_NODE_DIR_RUNTIME);
        struct sl_error why = {0};
        ck_assert_msg(sl_node_dir_claim(&want, &why) == SL_OK, "%s", why.text);
        for (size_t i = 0; i < SL_COUNT(sockets); i++) {
            struct sockaddr_un address = {.sun_family = AF_UNIX};
            (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", at,
                           sockets[i].name);
            int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
            (void)close(fd);
        }

        ck_assert_int_eq(sl_node_dir_clear(&want, true, &why), SL_OK);
        for (size_t i = 0; i < SL_COUNT(sockets); i++) {
            ck_assert_msg(exists(sockets[i].name) != sockets[i].goes, "%s", sockets[i].name);
        }
    }
END_TEST

/* Otherwise the node would remove it to make its own. */
START_TEST(a_file_where_a_node_has_another_type_is_refused_by_a_start_alone)
    {
        static const char *const files[] = {"watch", "keyer.sock", "gate.d", "pid", "program"};
        struct sl_node_dir_want want = want_of(SL_NODE_DIR_RUNTIME);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        ck_assert_msg(sl_node_dir_claim(&want, &why) == SL_OK, "%s", why.text);
        file_make(files[_i]);

        ck_assert_int_eq(sl_node_dir_check(&want, &seen, &why), SL_ERR_FOREIGN);
        ck_assert_msg(strstr(why.text, files[_i]) != NULL, "%s", why.text);
        ck_assert_int_eq(sl_node_dir_scan(&want, &seen, &why), SL_OK);
        ck_assert_int_eq(sl_node_dir_clear(&want, true, &why), SL_OK);
        ck_assert(exists(files[_i]));
    }
END_TEST

/* Opening a FIFO waits for its other side. */
START_TEST(a_fifo_of_a_files_name_is_refused)
    {
        static const struct {
            enum sl_node_dir place;
            const char *name;
        } fifos[] = {{SL_NODE_DIR_LOG, "supervisor.jsonl"},
                     {SL_NODE_DIR_LOG, "keyer.out"},
                     {SL_NODE_DIR_RUNTIME, "supervisor.lock"},
                     {SL_NODE_DIR_RUNTIME, "start-arguments"},
                     {SL_NODE_DIR_RUNTIME, "settings"}};
        struct sl_node_dir_want want = want_of(fifos[_i].place);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        char path[192];
        ck_assert_msg(sl_node_dir_claim(&want, &why) == SL_OK, "%s", why.text);
        (void)snprintf(path, sizeof(path), "%s/%s", at, fifos[_i].name);
        ck_assert_int_eq(mkfifo(path, 0600), 0);

        ck_assert_int_eq(sl_node_dir_check(&want, &seen, &why), SL_ERR_FOREIGN);
        ck_assert_int_eq(sl_node_dir_scan(&want, &seen, &why), SL_OK); /* of a node that runs */
    }
END_TEST

START_TEST(a_log_may_be_a_link)
    {
        struct sl_node_dir_want want = want_of(SL_NODE_DIR_LOG);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        char path[192];
        (void)snprintf(path, sizeof(path), "%s/keyer.jsonl", at);
        ck_assert_int_eq(symlink("/dev/null", path), 0);

        ck_assert_msg(sl_node_dir_claim(&want, &why) == SL_OK, "%s", why.text);
        file_make("registrar.jsonl");
        ck_assert_msg(sl_node_dir_check(&want, &seen, &why) == SL_OK, "%s", why.text);
        ck_assert_msg(sl_node_dir_scan(&want, &seen, &why) == SL_OK, "%s", why.text);
    }
END_TEST

/* A directory with a node's files and others belongs to no node that could be stopped. */
START_TEST(a_place_with_room_may_be_a_link)
    {
        static const char *const links[] = {"disk", "cache", "cluster", "log"};
        struct sl_node_dir_want want = want_of(SL_NODE_DIR_RUNTIME);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        char path[192];
        for (size_t i = 0; i < SL_COUNT(links); i++) {
            (void)snprintf(path, sizeof(path), "%s/%s", at, links[i]);
            ck_assert_int_eq(symlink(run, path), 0);
        }

        ck_assert_msg(sl_node_dir_claim(&want, &why) == SL_OK, "%s", why.text);
        ck_assert_msg(sl_node_dir_scan(&want, &seen, &why) == SL_OK, "%s", why.text);
        ck_assert_int_eq(sl_node_dir_clear(&want, false, &why), SL_OK);
        for (size_t i = 0; i < SL_COUNT(links); i++) {
            ck_assert_msg(exists(links[i]), "%s", links[i]);
        }
    }
END_TEST

START_TEST(a_node_is_known_by_what_only_nodes_make)
    {
        static const char *const files[] = {"cache/mine", "log/mine", "disk/mine",
                                            "mooncake-client-x"};
        struct sl_node_dir_want want = want_of(SL_NODE_DIR_RUNTIME);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        file_make(files[_i]);

        ck_assert_int_eq(sl_node_dir_scan(&want, &seen, &why), SL_OK);
        ck_assert(!seen.holds && !seen.made);
        file_make("supervisor.lock");
        ck_assert_int_eq(sl_node_dir_scan(&want, &seen, &why), SL_OK);
        ck_assert(seen.holds && seen.made);
    }
END_TEST

START_TEST(a_node_that_runs_keeps_its_directory_whatever_others_put_there)
    {
        struct sl_node_dir_want want = want_of(SL_NODE_DIR_RUNTIME);
        struct sl_error why = {0};
        file_make("mine.txt");
        file_make("settings");

        ck_assert_int_eq(sl_node_dir_claim(&want, &why), SL_ERR_FOREIGN);
        ck_assert_msg(sl_node_dir_mark(&want, &why) == SL_OK, "%s", why.text);
        ck_assert_msg(sl_node_dir_claim(&want, &why) == SL_OK, "%s", why.text);
        ck_assert_int_eq(sl_node_dir_clear(&want, true, &why), SL_OK);
        ck_assert(exists("mine.txt") && !exists("settings"));
    }
END_TEST

START_TEST(a_segment_is_known_by_its_first_bytes)
    {
        struct sl_node_dir_want want = want_of(SL_NODE_DIR_SHM);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        char path[192];
        (void)snprintf(path, sizeof(path), "%s/index", at);
        sl_tmpdir_write(path, "an index", 8);

        ck_assert_int_eq(sl_node_dir_check(&want, &seen, &why), SL_ERR_FOREIGN);
        ck_assert_int_eq(sl_node_dir_claim(&want, &why), SL_ERR_FOREIGN);
        ck_assert_int_eq(sl_node_dir_clear(&want, false, &why), SL_OK);
        ck_assert(exists("index") && !exists(SL_NODE_DIR_MARKER));
    }
END_TEST

START_TEST(directory_of_another_node_is_refused_until_that_is_gone)
    {
        struct sl_node_dir_want mine = want_of(SL_NODE_DIR_SHM), other = mine;
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        char path[96];
        sl_tmpdir_at(&tmpdir, "other", path, sizeof(path));
        ck_assert_int_eq(mkdir(path, 0700), 0);
        other.runtime_dir = path;
        ck_assert_int_eq(sl_node_dir_claim(&other, &why), SL_OK);
        file_make("index");

        ck_assert_int_eq(sl_node_dir_check(&mine, &seen, &why), SL_ERR_EXISTS);
        ck_assert_msg(strstr(why.text, path) != NULL, "%s", why.text);
        ck_assert_int_eq(sl_node_dir_clear(&mine, true, &why), SL_OK);
        ck_assert(exists("index"));
        ck_assert_int_eq(rmdir(path), 0);
        ck_assert_int_eq(sl_node_dir_claim(&mine, &why), SL_OK);
        ck_assert_int_eq(sl_node_dir_clear(&mine, false, &why), SL_OK);
        ck_assert(!exists("index"));
    }
END_TEST

START_TEST(what_a_setting_names_is_not_somebody_elses)
    {
        char disk[192];
        const char *others[] = {disk};
        struct sl_node_dir_want want = want_of(SL_NODE_DIR_RUNTIME);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        (void)snprintf(disk, sizeof(disk), "%s/values", at);
        file_make("values/lock");

        ck_assert_int_eq(sl_node_dir_check(&want, &seen, &why), SL_ERR_FOREIGN);
        want.others = others;
        want.other_count = 1;
        ck_assert_msg(sl_node_dir_check(&want, &seen, &why) == SL_OK, "%s", why.text);
        (void)snprintf(disk, sizeof(disk), "%s/val", at); /* another path with the same beginning */
        ck_assert_int_eq(sl_node_dir_check(&want, &seen, &why), SL_ERR_FOREIGN);
    }
END_TEST

START_TEST(a_link_or_a_second_name_where_a_file_was_is_an_error)
    {
        struct sl_node_dir_want want = want_of(SL_NODE_DIR_RUNTIME);
        struct sl_node_dir_seen seen;
        struct sl_error why = {0};
        char victim[96], path[192];
        sl_tmpdir_at(&tmpdir, "victim", victim, sizeof(victim));
        sl_tmpdir_write(victim, "mine", 4);
        (void)snprintf(path, sizeof(path), "%s/supervisor.state", at);
        ck_assert_int_eq(_i < 2 || sl_node_dir_claim(&want, &why) == SL_OK, 1);
        ck_assert_int_eq(_i % 2 == 0 ? symlink(victim, path) : link(victim, path), 0);

        ck_assert_int_eq(sl_node_dir_scan(&want, &seen, &why), SL_ERR_FOREIGN);
        ck_assert_msg(strstr(why.text, "supervisor.state") != NULL, "%s", why.text);
    }
END_TEST

START_TEST(directories_of_the_system_are_nobodys)
    {
        for (int place = SL_NODE_DIR_RUNTIME; place <= SL_NODE_DIR_LOG; place++) {
            struct sl_node_dir_want want = want_of((enum sl_node_dir)place);
            struct sl_node_dir_seen seen;
            want.path = "/";
            bool fine = sl_node_dir_check(&want, &seen, NULL) == SL_OK;
            ck_assert(fine == (place == SL_NODE_DIR_LOG)); /* may stay, and is not touched */
            ck_assert(seen.foreign[0] != '\0' && !seen.holds);
            ck_assert_int_eq(sl_node_dir_clear(&want, true, NULL), SL_OK);
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("node_dirs");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_loop_test(all, what_a_node_made_goes_and_nothing_else, 0, (int)SL_COUNT(names));
    tcase_add_loop_test(all, without_a_marker_the_names_count, 0, (int)SL_COUNT(unmarked));
    tcase_add_test(all, a_socket_of_another_program_stays);
    tcase_add_loop_test(all, a_file_where_a_node_has_another_type_is_refused_by_a_start_alone, 0,
                        5);
    tcase_add_test(all, a_log_may_be_a_link);
    tcase_add_loop_test(all, a_fifo_of_a_files_name_is_refused, 0, 5);
    tcase_add_test(all, a_place_with_room_may_be_a_link);
    tcase_add_loop_test(all, a_node_is_known_by_what_only_nodes_make, 0, 4);
    tcase_add_test(all, a_node_that_runs_keeps_its_directory_whatever_others_put_there);
    tcase_add_test(all, a_segment_is_known_by_its_first_bytes);
    tcase_add_test(all, directory_of_another_node_is_refused_until_that_is_gone);
    tcase_add_test(all, what_a_setting_names_is_not_somebody_elses);
    tcase_add_loop_test(all, a_link_or_a_second_name_where_a_file_was_is_an_error, 0, 4);
    tcase_add_test(all, directories_of_the_system_are_nobodys);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* tests/unit/runtime/net/directory_test.c - the cluster directory against a server played by the
 * test: its answers, its silence, and its malformed data. */
#include "runtime/net/directory/directory.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HEARD_BYTES (4 * SL_MIB)
#define SECOND      SL_NS_PER_S

static struct sl_directory *directory;
static struct sl_tmpdir dir;
static uint64_t now_ns;
static int listener, server; /* server: -1, no connection */
static char heard[HEARD_BYTES];
static size_t heard_bytes;

/* Calls of the directory. */
static struct {
    uint32_t found_count, member_count, up_count, down_count;
    sl_err code;
    uint64_t cookie;
    uint32_t keys, holders[SL_DIRECTORY_KEYS_MAX];
    char first[SL_DIRECTORY_NAME_BYTES];
    char why[SL_ERROR_TEXT_BYTES];
} seen;

static void on_found(void *context, uint64_t cookie, sl_err code,
                     const struct sl_directory_found *found, uint32_t count)
{
    (void)context;
    seen.found_count++;
    seen.cookie = cookie;
    seen.code = code;
    seen.keys = count;
    ck_assert(code == SL_OK || found == NULL);
    for (uint32_t i = 0; i < count; i++) {
        seen.holders[i] = found[i].holder_count;
        if (found[i].holder_count > 0) {
            strcpy(seen.first, found[i].holders[0]->name);
        }
    }
}

static void on_members(void *context)
{
    (void)context;
    seen.member_count++;
}

static void on_link(void *context, bool up, const struct sl_error *why)
{
    (void)context;
    seen.up_count += up;
    seen.down_count += !up;
    if (!up) {
        strcpy(seen.why, why->text);
    }
}

static void options_set(struct sl_directory_options *options, char url[160])
{
    snprintf(url, 160, "unix://%s/redis", dir.path);
    sl_directory_options_init(options);
    options->kind = SL_DIRECTORY_REDIS;
    options->url = url;
    options->cluster = "test";
    options->timeout_ns = SECOND;
    options->node_ttl_ns = 9 * SECOND;
    options->events =
        (struct sl_directory_events){.found = on_found, .members = on_members, .link = on_link};
}

static void server_listen(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/redis", dir.path);
    (void)unlink(address.sun_path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_ge(listener, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(listener, 4), 0);
}

static void setup(void)
{
    struct sl_directory_options options;
    struct sl_error why = {0};
    char url[160];
    sl_tmpdir_make(&dir, "/tmp");
    server_listen();
    server = -1;
    now_ns = 100 * SECOND;
    memset(&seen, 0, sizeof(seen));
    options_set(&options, url);
    ck_assert_msg(sl_directory_open(&options, &directory, &why) == SL_OK, "%s", why.text);
}

static void teardown(void)
{
    sl_directory_close(&directory);
    close(listener);
    if (server >= 0) {
        close(server);
    }
    sl_tmpdir_remove(&dir);
}

/* Runs the directory until it waits for the server or for time; the server reads what it sent. */
static void turn(void)
{
    for (uint32_t i = 0; i < 64; i++) {
        sl_directory_step(directory, now_ns);
        if (server < 0) {
            server = accept(listener, NULL, NULL);
        }
        while (server >= 0) {
            ssize_t got =
                recv(server, heard + heard_bytes, HEARD_BYTES - heard_bytes - 1, MSG_DONTWAIT);
            if (got == 0) {
                close(server);
                server = -1;
            }
            if (got <= 0) {
                break;
            }
            heard_bytes += (size_t)got;
        }
    }
    heard[heard_bytes] = '\0';
}

static uint32_t heard_count(const char *text)
{
    uint32_t count = 0;
    for (const char *at = heard; (at = strstr(at, text)) != NULL; at += strlen(text)) {
        count++;
    }
    return count;
}

static void say_bytes(const char *bytes, size_t length)
{
    heard_bytes = 0;
    ck_assert_int_ge(server, 0);
    for (size_t at = 0; at < length && server >= 0;) {
        ssize_t sent = send(server, bytes + at, length - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += (size_t)sent;
        }
        turn();
    }
}

static void say(const char *text)
{
    say_bytes(text, strlen(text));
}

/* Connects, announces "me"; the only other node is "b" of incarnation 7. */
static void meet_b(void)
{
    struct sl_directory_member self = {.name = "me", .incarnation = 5, .control = "tcp://me:1"};
    struct sl_error why = {0};
    ck_assert_msg(sl_directory_announce(directory, &self, &why) == SL_OK, "%s", why.text);
    turn();
    ck_assert_ptr_nonnull(strstr(heard, "PING"));
    say("+PONG\r\n");
    ck_assert_ptr_nonnull(strstr(heard, "sluice:test:n:me"));
    ck_assert_ptr_nonnull(strstr(heard, "1 5 tcp://me:1 -"));
    say(":1\r\n+OK\r\n*2\r\n$2\r\nme\r\n$1\r\nb\r\n");
    ck_assert_ptr_nonnull(strstr(heard, "sluice:test:n:b"));
    say("$25\r\n1 7 tcp://b:1 10.0.0.2:99\r\n");
}

static sl_err look_up(uint32_t count, uint64_t budget_ns)
{
    static uint64_t ids[SL_DIRECTORY_KEYS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = i + 1;
    }
    struct sl_directory_lookup lookup = {.ids = ids,
                                         .count = count,
                                         .now_ns = now_ns,
                                         .deadline_ns = now_ns + budget_ns,
                                         .cookie = 77};
    return sl_directory_lookup(directory, &lookup);
}

START_TEST(alone_there_is_nobody_to_ask)
    {
        struct sl_directory_options options;
        struct sl_directory *alone = NULL;
        const struct sl_directory_member *members;
        const uint64_t id = 1;
        struct sl_directory_lookup lookup = {.ids = &id, .count = 1};
        sl_directory_options_init(&options);
        options.events.found = on_found;
        ck_assert_int_eq(sl_directory_open(&options, &alone, NULL), SL_OK);
        ck_assert_int_eq(sl_directory_fd(alone), -1);
        ck_assert_uint_eq(sl_directory_wake_at(alone), SL_NEVER_NS);
        ck_assert(sl_directory_publish(alone, 1, true));
        ck_assert_int_eq(sl_directory_lookup(alone, &lookup), SL_ERR_NOT_FOUND);
        lookup.count = 0;
        ck_assert_int_eq(sl_directory_lookup(alone, &lookup), SL_ERR_INVALID);
        ck_assert_uint_eq(sl_directory_members(alone, &members), 0);
        sl_directory_step(alone, 1);
        sl_directory_close(&alone);
    }
END_TEST

static const struct {
    const char *url, *cluster, *why; /* why NULL: good */
} urls[] = {
    {"redis://127.0.0.1:6379", "c", NULL},
    {"redis://localhost:6379/15", "c", NULL},
    {"redis://[::1]:6379", "c", NULL},
    {"redis://:p%40ss@127.0.0.1:6379", "c", NULL},
    {"redis://user:pass@127.0.0.1:6379/0", "c", NULL},
    {"unix:///tmp/redis.sock?db=3", "c", NULL},
    {"", "c", "redis://"},
    {"http://127.0.0.1:80", "c", "redis://"},
    {"redis://127.0.0.1", "c", "no port"},
    {"redis://127.0.0.1:0", "c", "no port"},
    {"redis://127.0.0.1:65536", "c", "no port"},
    {"redis://127.0.0.1:6379/x", "c", "number of a database"},
    {"redis://redis.example:6379", "c", "no IP address"},
    {"redis://secret@127.0.0.1:6379", "c", "USER:PASSWORD"},
    {"redis://u:%4@127.0.0.1:6379", "c", "USER:PASSWORD"},
    {"redis://u:%00@127.0.0.1:6379", "c", "USER:PASSWORD"},
    {"unix://relative", "c", "absolute"},
    {"unix:///a?x=1", "c", "?db="},
    {"redis://127.0.0.1:6379", "", "directory_name"},
    {"redis://127.0.0.1:6379", "two words", "directory_name"},
};
START_TEST(places_are_checked)
    {
        struct sl_directory_options options;
        struct sl_directory *other = NULL;
        struct sl_error why = {0};
        char url[160];
        options_set(&options, url);
        options.url = urls[_i].url;
        options.cluster = urls[_i].cluster;
        sl_err err = sl_directory_open(&options, &other, &why);
        ck_assert_msg(err == (urls[_i].why == NULL ? SL_OK : SL_ERR_CONFIG), "%s", why.text);
        if (urls[_i].why != NULL) {
            ck_assert_msg(strstr(why.text, urls[_i].why) != NULL, "%s", why.text);
            ck_assert_msg(strstr(why.text, "secret") == NULL, "%s", why.text);
        }
        sl_directory_close(&other);
    }
END_TEST

START_TEST(greeting_carries_what_the_url_says)
    {
        struct sl_directory_options options;
        char url[160], path[200];
        sl_directory_close(&directory);
        options_set(&options, url);
        snprintf(path, sizeof(path), "%s?db=3", url);
        options.url = path;
        options.password = "open sesame";
        ck_assert_int_eq(sl_directory_open(&options, &directory, NULL), SL_OK);
        turn();
        ck_assert_str_eq(heard, "*2\r\n$4\r\nAUTH\r\n$11\r\nopen sesame\r\n"
                                "*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*1\r\n$4\r\nPING\r\n");
        say("+OK\r\n+OK\r\n");
        ck_assert_uint_eq(seen.up_count, 0);
        say("+PONG\r\n");
        ck_assert_uint_eq(seen.up_count, 1);
    }
END_TEST

START_TEST(a_refused_greeting_is_tried_again)
    {
        struct sl_directory_stats stats;
        turn();
        say("-LOADING the data set\r\n");
        ck_assert_int_eq(server, -1);
        ck_assert_msg(strstr(seen.why, "LOADING") != NULL, "%s", seen.why);
        ck_assert_uint_eq(seen.down_count, 1);
        for (uint32_t i = 0; i < 5; i++) {
            now_ns += 10 * SECOND;
            turn();
            say("-LOADING still\r\n");
        }
        ck_assert_uint_eq(seen.down_count, 1); /* no news */
        now_ns += 10 * SECOND;
        turn();
        say("+PONG\r\n");
        ck_assert_uint_eq(seen.up_count, 1);
        sl_directory_stats(directory, &stats);
        ck_assert(stats.up);
        ck_assert_uint_eq(stats.links_lost, 0); /* it never stood */
    }
END_TEST

START_TEST(a_link_that_stood_begins_with_short_pauses)
    {
        turn();
        for (uint32_t i = 0; i < 10; i++) { /* the pause grows to its most */
            say("-LOADING the data set\r\n");
            now_ns += 10 * SECOND;
            turn();
        }
        say("+PONG\r\n");
        ck_assert_uint_eq(seen.up_count, 1);

        close(server);
        server = -1;
        turn();
        ck_assert_uint_eq(seen.down_count, 2);
        now_ns += SECOND / 20;
        turn();

        ck_assert_int_ge(server, 0);
    }
END_TEST

START_TEST(members_are_those_with_a_record)
    {
        const struct sl_directory_member *members;
        meet_b();
        ck_assert_uint_eq(sl_directory_members(directory, &members), 1);
        ck_assert_str_eq(members[0].name, "b");
        ck_assert_uint_eq(members[0].incarnation, 7);
        ck_assert_str_eq(members[0].control, "tcp://b:1");
        ck_assert_str_eq(members[0].fabric, "10.0.0.2:99");
        ck_assert_uint_eq(seen.member_count, 1);

        now_ns += 4 * SECOND; /* a third has passed */
        turn();
        say(":0\r\n+OK\r\n*2\r\n$2\r\nme\r\n$1\r\nb\r\n");
        say("$25\r\n1 7 tcp://b:1 10.0.0.2:99\r\n");
        ck_assert_uint_eq(seen.member_count, 1); /* the same */

        now_ns += 4 * SECOND;
        turn();
        say(":0\r\n+OK\r\n*2\r\n$2\r\nme\r\n$1\r\nb\r\n");
        say("$-1\r\n"); /* it expired */
        ck_assert_uint_eq(sl_directory_members(directory, &members), 0);
        ck_assert_uint_eq(seen.member_count, 2);
        ck_assert_ptr_nonnull(strstr(heard, "SREM"));
        ck_assert_int_eq(look_up(1, SECOND), SL_ERR_NOT_FOUND);
    }
END_TEST

START_TEST(holders_count_with_their_incarnation)
    {
        meet_b();
        ck_assert_int_eq(look_up(5, SECOND), SL_OK);
        turn();
        ck_assert_uint_eq(heard_count("HGETALL"), 5);
        say("*2\r\n$1\r\nb\r\n$1\r\n7\r\n"                     /* it is */
            "*2\r\n$1\r\nb\r\n$1\r\n6\r\n"                     /* a former life */
            "*2\r\n$1\r\nc\r\n$1\r\n7\r\n"                     /* no record */
            "*4\r\n$2\r\nme\r\n$1\r\n5\r\n$1\r\nb\r\n$1\r\n"); /* half an answer */
        ck_assert_uint_eq(seen.found_count, 0);
        say("7\r\n*0\r\n");
        ck_assert_uint_eq(seen.found_count, 1);
        ck_assert_int_eq(seen.code, SL_OK);
        ck_assert_uint_eq(seen.cookie, 77);
        static const uint32_t want[] = {1, 0, 0, 1, 0};
        ck_assert_uint_eq(seen.keys, 5);
        ck_assert_mem_eq(seen.holders, want, sizeof(want));
        ck_assert_str_eq(seen.first, "b");
    }
END_TEST

START_TEST(a_stranger_is_asked_for_soon)
    {
        meet_b();
        ck_assert_int_eq(look_up(1, SECOND), SL_OK);
        turn();
        say("*2\r\n$1\r\nc\r\n$1\r\n9\r\n");
        heard_bytes = 0;
        turn();
        ck_assert_uint_eq(heard_count("SMEMBERS"), 0); /* not for each */
        now_ns += 9 * SECOND / 30;
        turn();
        ck_assert_uint_eq(heard_count("SMEMBERS"), 1);
    }
END_TEST

START_TEST(silence_costs_one_deadline_and_then_nothing)
    {
        meet_b();
        ck_assert_int_eq(look_up(1, SECOND / 2), SL_OK);
        ck_assert_int_eq(look_up(1, 100 * SECOND), SL_OK);
        turn();
        now_ns += SECOND / 2;
        turn();
        ck_assert_uint_eq(seen.found_count, 1);
        ck_assert_int_eq(seen.code, SL_ERR_TIMEOUT);
        ck_assert_uint_eq(seen.down_count, 0);

        now_ns += SECOND / 2; /* the server's own limit */
        turn();
        ck_assert_uint_eq(seen.found_count, 2);
        ck_assert_int_eq(seen.code, SL_ERR_UNREACHABLE);
        ck_assert_uint_eq(seen.down_count, 1);
        ck_assert_int_eq(look_up(1, SECOND), SL_ERR_UNREACHABLE);
        ck_assert(!sl_directory_publish(directory, 1, true));

        now_ns += 10 * SECOND; /* connected but silent: still unreachable */
        turn();
        ck_assert_int_ge(server, 0);
        ck_assert_int_eq(look_up(1, SECOND), SL_ERR_UNREACHABLE);
        say("+PONG\r\n");
        ck_assert_uint_eq(seen.up_count, 2); /* publish again */
        /* It may have lost the members as well: until they are known, its answers prove nothing. */
        ck_assert_int_eq(look_up(1, SECOND), SL_ERR_UNREACHABLE);
        say(":1\r\n+OK\r\n*1\r\n$1\r\nb\r\n");
        ck_assert_int_eq(look_up(1, SECOND), SL_ERR_UNREACHABLE);
        say("$25\r\n1 7 tcp://b:1 10.0.0.2:99\r\n");
        ck_assert_int_eq(look_up(1, SECOND), SL_OK);
    }
END_TEST

static const struct {
    const char *own; /* the server's answer: our record */
    bool kept, twin;
} owns[] = {
    {"$-1\r\n", false, false},
    {"$16\r\n1 4 tcp://me:1 -\r\n", false, true}, /* of another node */
    {"-ERR\r\n", false, false},
    {"$16\r\n1 5 tcp://me:1 -\r\n", true, false}, /* it has lost no data */
};
START_TEST(a_record_that_is_held_is_not_told)
    {
        meet_b();
        sl_directory_hold(directory, true);
        heard_bytes = 0;
        now_ns += 20 * SECOND;
        turn();
        ck_assert_uint_eq(heard_count("SMEMBERS"), 1);
        ck_assert_uint_eq(heard_count("SET"), 0);
        ck_assert_uint_eq(heard_count("GET"), 1);
        ck_assert_uint_eq(heard_count("sluice:test:n:me"), 1);

        say(owns[_i].own);

        ck_assert_uint_eq(heard_count("EVAL"), owns[_i].kept ? 1 : 0);
        ck_assert_uint_eq(heard_count("sluice:test:t:me"), owns[_i].kept || owns[_i].twin ? 1 : 0);
        heard_bytes = 0;
        sl_directory_hold(directory, false);
        turn();
        ck_assert_uint_eq(heard_count("EVAL"), owns[_i].kept ? 0 : 1); /* at once */
        say(owns[_i].twin ? "*1\r\n$1\r\nb\r\n+OK\r\n:1\r\n+OK\r\n"
                          : "*1\r\n$1\r\nb\r\n:1\r\n+OK\r\n");
        /* It was not down; but its keys were not reported while another node had its name. */
        ck_assert_uint_eq(seen.up_count, owns[_i].twin ? 2 : 1);
        ck_assert_uint_eq(seen.down_count, 0);
    }
END_TEST

static void record_says(const char *answer)
{
    now_ns += 4 * SECOND; /* a third has passed */
    turn();
    ck_assert_uint_eq(heard_count("EVAL"), 1);
    say(":0\r\n");
    say(answer);
    say("*2\r\n$2\r\nme\r\n$1\r\nb\r\n");
    say("$25\r\n1 7 tcp://b:1 10.0.0.2:99\r\n");
}

/* An ACL, or rename-command: nodes still find each other. */
START_TEST(a_server_without_scripts_gets_a_plain_record)
    {
        meet_b();
        heard_bytes = 0;
        now_ns += 4 * SECOND;
        turn();
        ck_assert_uint_eq(heard_count("EVAL"), 1);
        heard_bytes = 0;
        say(":0\r\n-NOPERM this user has no permissions to run the 'eval' command\r\n");
        ck_assert_uint_eq(heard_count("$3\r\nSET\r\n"), 1);
        ck_assert_uint_eq(heard_count("sluice:test:n:me"), 1);
        say("*2\r\n$2\r\nme\r\n$1\r\nb\r\n");
        say("+OK\r\n");
        say("$25\r\n1 7 tcp://b:1 10.0.0.2:99\r\n");
        ck_assert(sl_directory_publish(directory, 1, true));

        heard_bytes = 0;
        now_ns += 4 * SECOND;
        turn();
        ck_assert_uint_eq(heard_count("EVAL"), 0);
        ck_assert_uint_eq(heard_count("$3\r\nSET\r\n"), 1);
    }
END_TEST

START_TEST(of_two_records_under_one_name_the_first_stays)
    {
        static const char first[] = "$20\r\nR1 9 10.0.0.9:7411 -\r\n";
        meet_b();
        for (uint32_t i = 0; i < 3; i++) {
            record_says(first); /* perhaps of an ended life */
            ck_assert_str_eq(sl_directory_twin(directory), "");
            ck_assert(
                !sl_directory_publish(directory, 1, true)); /* it would overwrite the first's */
        }
        record_says(first); /* another renewal */
        ck_assert_ptr_nonnull(strstr(sl_directory_twin(directory), "10.0.0.9:7411"));
        ck_assert_ptr_nonnull(strstr(sl_directory_twin(directory), "tcp://me:1"));
        uint32_t up_count = seen.up_count;
        record_says("+OK\r\n");
        ck_assert_str_eq(sl_directory_twin(directory), "");
        ck_assert_uint_eq(seen.up_count, up_count + 1); /* all was reported */
        ck_assert(sl_directory_publish(directory, 1, true));

        record_says(first);
        heard_bytes = 0;
        sl_directory_leave(directory);
        turn();
        ck_assert_uint_eq(heard_count("DEL"), 0); /* it is not ours */
    }
END_TEST

START_TEST(the_first_of_two_nodes_is_told_and_goes_on)
    {
        meet_b();
        record_says("$20\r\nT1 9 10.0.0.9:7411 -\r\n");
        ck_assert_ptr_nonnull(strstr(sl_directory_twin(directory), "the one at 10.0.0.9:7411"));
        ck_assert(sl_directory_publish(directory, 1, true));
        turn();
        ck_assert_uint_eq(heard_count("HSET"), 1);
    }
END_TEST

START_TEST(a_late_answer_finds_no_look_up)
    {
        meet_b();
        ck_assert_int_eq(look_up(2, SECOND / 2), SL_OK);
        turn();
        say("*2\r\n$1\r\nb\r\n$1\r\n7\r\n");
        now_ns += SECOND / 2;
        turn();
        ck_assert_int_eq(seen.code, SL_ERR_TIMEOUT);
        say("*2\r\n$1\r\nb\r\n$1\r\n7\r\n");
        ck_assert_uint_eq(seen.found_count, 1);
        ck_assert_int_eq(look_up(1, SECOND), SL_OK); /* in order again */
        turn();
        say("*0\r\n");
        ck_assert_uint_eq(seen.found_count, 2);
        ck_assert_int_eq(seen.code, SL_OK);
    }
END_TEST

START_TEST(everything_has_a_bound)
    {
        static const uint64_t none = 1;
        struct sl_directory_lookup many = {.ids = &none, .count = SL_DIRECTORY_KEYS_MAX + 1};
        struct sl_directory_stats stats;
        uint32_t taken = 0;
        meet_b();
        ck_assert_int_eq(sl_directory_lookup(directory, &many), SL_ERR_INVALID);
        for (uint32_t i = 0; i < SL_DIRECTORY_LOOKUPS_MAX; i++) {
            ck_assert_int_eq(look_up(1, SECOND), SL_OK);
        }
        ck_assert_int_eq(look_up(1, SECOND), SL_ERR_LIMIT);
        while (sl_directory_publish(directory, taken + 1, true)) {
            taken++;
        }
        ck_assert_uint_eq(taken, SL_DIRECTORY_QUEUE_MAX);
        heard_bytes = 0;
        turn();
        uint32_t sent = heard_count("HSET");
        ck_assert_uint_gt(sent, 0);
        ck_assert_uint_lt(sent, SL_DIRECTORY_QUEUE_MAX); /* no more before it answers */
        ck_assert_uint_eq(heard_count("PEXPIRE"), sent);
        close(server);
        server = -1;
        turn();
        sl_directory_stats(directory, &stats);
        ck_assert_uint_eq(stats.publications_lost, SL_DIRECTORY_QUEUE_MAX);
        ck_assert_uint_eq(stats.waiting, 0);
        ck_assert_uint_eq(seen.found_count, SL_DIRECTORY_LOOKUPS_MAX);
    }
END_TEST

START_TEST(errors_of_the_server_are_counted)
    {
        struct sl_directory_stats stats;
        meet_b();
        ck_assert(sl_directory_publish(directory, 1, true));
        ck_assert(sl_directory_publish(directory, 2, false));
        ck_assert_int_eq(look_up(1, SECOND), SL_OK);
        turn();
        ck_assert_uint_eq(heard_count("HDEL"), 1);
        say("-NOPERM\r\n-OOM command not allowed\r\n:0\r\n:1\r\n");
        sl_directory_stats(directory, &stats);
        ck_assert_uint_eq(stats.refused, 2);
        ck_assert_uint_eq(stats.withdrawn, 1);
        ck_assert_uint_eq(stats.published, 0);
        ck_assert(stats.up);
        ck_assert_int_eq(seen.code, SL_OK);
        ck_assert_uint_eq(seen.holders[0], 0);
    }
END_TEST

/* Answers to SADD, SET, SMEMBERS and what follows. */
static const struct {
    const char *reply;
    bool survives;
} nonsense[] = {
    {"*1\r\n$3\r\na b\r\n", true}, /* no name */
    {"*1\r\n$0\r\n\r\n", true},
    {"*2\r\n$-1\r\n$1\r\nb\r\n$4\r\n1 7 \r\n", true}, /* a record without addresses */
    {"*1\r\n$1\r\nb\r\n$7\r\n1 0 - -\r\n", true},
    {"*1\r\n$1\r\nb\r\n$7\r\n2 7 - -\r\n", true}, /* of a later version */
    {"*1\r\n$1\r\nb\r\n$26\r\n1 99999999999999999999 - -\r\n", true},
    {"*1\r\n$1\r\nb\r\n$9\r\n1 7 a\tb -\r\n", true},
    {"*3\r\n$1\r\nb\r\n$1\r\nb\r\n$1\r\nb\r\n$-1\r\n", true}, /* asked for once */
    {"-ERR\r\n", true},
    {"*-1\r\n", false},
    {"+OK\r\n", false},
    {":3\r\n", false},
    {"$1\r\nb\r\n", false},
    {"*1\r\n:3\r\n", false},
    {"*1\r\n*1\r\n$1\r\nb\r\n", false},
    {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", false},
    {"*2000000000\r\n", false},
    {"*99999999999999999999\r\n", false},
    {"$99999999999999999999\r\n", false},
    {"$-5\r\n", false},
    {"HTTP/1.1 400 Bad Request\r\n\r\n", false},
    {"*0\r\n+OK\r\n", false}, /* answer without a request */
};
START_TEST(nonsense_ends_the_connection_at_worst)
    {
        struct sl_directory_member self = {.name = "me", .incarnation = 5};
        const struct sl_directory_member *members;
        ck_assert_int_eq(sl_directory_announce(directory, &self, NULL), SL_OK);
        turn();
        say("+PONG\r\n");
        say(":1\r\n+OK\r\n");
        say(nonsense[_i].reply);
        ck_assert_int_eq(server >= 0, nonsense[_i].survives);
        ck_assert_uint_eq(seen.down_count, !nonsense[_i].survives);
        ck_assert_uint_eq(sl_directory_members(directory, &members), 0);
    }
END_TEST

static const struct {
    const char *head;
    size_t length;
} floods[] = {
    {"$1000000000\r\n", 2 * SL_MIB}, /* a text without end */
    {"+", 2 * SL_MIB},
};
START_TEST(a_flood_is_cut_off)
    {
        static char flood[2 * SL_MIB];
        turn();
        say("+PONG\r\n");
        memset(flood, 'x', sizeof(flood));
        memcpy(flood, floods[_i].head, strlen(floods[_i].head));
        say_bytes(flood, floods[_i].length);
        ck_assert_int_eq(server, -1);
        ck_assert_uint_eq(seen.down_count, 1);
    }
END_TEST

START_TEST(a_crowd_of_holders_is_bounded_and_thinned_out)
    {
        static char crowd[2 * SL_MIB];
        size_t length = 0;
        meet_b();
        ck_assert_int_eq(look_up(1, SECOND), SL_OK);
        turn();
        length += (size_t)snprintf(crowd, sizeof(crowd), "*20002\r\n$1\r\nb\r\n$1\r\n7\r\n");
        for (uint32_t i = 0; i < 10000; i++) {
            length += (size_t)snprintf(crowd + length, sizeof(crowd) - length,
                                       "$9\r\nnode-%04u\r\n$1\r\n1\r\n", i);
        }
        say_bytes(crowd, length);
        ck_assert_uint_eq(seen.found_count, 1);
        ck_assert_uint_eq(seen.holders[0], 1);
        ck_assert_uint_eq(seen.down_count, 0);
        ck_assert_uint_gt(heard_count("HDEL"), 0);
        ck_assert_uint_lt(heard_count("HDEL"), 10);
    }
END_TEST

/* Random bytes, and random bytes after valid ones. */
START_TEST(noise_never_harms)
    {
        uint64_t random = (uint64_t)_i + 1;
        static const char good[] = "*2\r\n$1\r\nb\r\n$1\r\n7\r\n";
        char noise[512];
        meet_b();
        for (uint32_t round = 0; round < 50 && server >= 0; round++) {
            (void)look_up(20, SECOND);
            (void)sl_directory_publish(directory, round, round % 2 == 0);
            turn();
            size_t length = random % sizeof(noise);
            for (size_t i = 0; i < length; i++) {
                random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                noise[i] = random % 8 == 0 ? (char)random : good[random / 8 % (sizeof(good) - 1)];
            }
            say(good);
            if (server >= 0) {
                say_bytes(noise, length);
            }
        }
        now_ns += 60 * SECOND;
        turn();
        if (server >= 0 && strstr(heard, "PING") != NULL) {
            say("+PONG\r\n");
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("directory");
    TCase *cases = tcase_create("directory");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, alone_there_is_nobody_to_ask);
    tcase_add_loop_test(cases, places_are_checked, 0, SL_COUNT(urls));
    tcase_add_test(cases, greeting_carries_what_the_url_says);
    tcase_add_test(cases, a_refused_greeting_is_tried_again);
    tcase_add_test(cases, a_link_that_stood_begins_with_short_pauses);
    tcase_add_test(cases, members_are_those_with_a_record);
    tcase_add_test(cases, holders_count_with_their_incarnation);
    tcase_add_test(cases, a_stranger_is_asked_for_soon);
    tcase_add_test(cases, silence_costs_one_deadline_and_then_nothing);
    tcase_add_loop_test(cases, a_record_that_is_held_is_not_told, 0, SL_COUNT(owns));
    tcase_add_test(cases, a_server_without_scripts_gets_a_plain_record);
    tcase_add_test(cases, of_two_records_under_one_name_the_first_stays);
    tcase_add_test(cases, the_first_of_two_nodes_is_told_and_goes_on);
    tcase_add_test(cases, a_late_answer_finds_no_look_up);
    tcase_add_test(cases, everything_has_a_bound);
    tcase_add_test(cases, errors_of_the_server_are_counted);
    tcase_add_loop_test(cases, nonsense_ends_the_connection_at_worst, 0, SL_COUNT(nonsense));
    tcase_add_loop_test(cases, a_flood_is_cut_off, 0, SL_COUNT(floods));
    tcase_add_test(cases, a_crowd_of_holders_is_bounded_and_thinned_out);
    tcase_add_loop_test(cases, noise_never_harms, 0, 10);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

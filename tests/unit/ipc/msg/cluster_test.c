/* tests/unit/ipc/msg/cluster_test.c - what the settings mean for a node of a cluster. */
#include "ipc/msg/sl_cluster.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sl_config *config_of(const char *const *settings)
{
    struct sl_config *config = NULL;
    ck_assert_int_eq(sl_config_create(&config, NULL), SL_OK);
    for (; *settings != NULL; settings += 2) {
        struct sl_error why = {0};
        ck_assert_msg(sl_config_set(config, settings[0], settings[1], "test", &why) == SL_OK, "%s",
                      why.text);
    }
    return config;
}

START_TEST(one_name_serves_peers_and_directory)
    {
        char host[256] = "", want[300], name[SL_CLUSTER_NAME_BYTES];
        struct sl_error why = {0};
        ck_assert_int_eq(gethostname(host, sizeof(host) - 1), 0);
        host[strcspn(host, ".")] = '\0';

        struct sl_config *config = config_of((const char *const[]){"node_name", "n.1", NULL});
        ck_assert_int_eq(sl_cluster_name(config, name, &why), SL_OK);
        ck_assert_str_eq(name, "n.1");
        sl_config_destroy(&config);

        config = config_of((const char *const[]){NULL});
        sl_err err = sl_cluster_name(config, name, &why);
        ck_assert_int_eq(err, strlen(host) < sizeof(name) ? SL_OK : SL_ERR_CONFIG);
        ck_assert(err != SL_OK || strcmp(name, host) == 0);
        sl_config_destroy(&config);

        config = config_of((const char *const[]){"instance", "x", NULL}); /* two on one host */
        err = sl_cluster_name(config, name, &why);
        (void)snprintf(want, sizeof(want), "%s.x", host);
        ck_assert_int_eq(err, strlen(want) < sizeof(name) ? SL_OK : SL_ERR_CONFIG);
        ck_assert(err != SL_OK || strcmp(name, want) == 0);
        sl_config_destroy(&config);
    }
END_TEST

static const char *const bad_names[] = {"-a", "a b", "a/b", ".a"};
START_TEST(a_bad_name_is_named)
    {
        char name[SL_CLUSTER_NAME_BYTES];
        struct sl_error why = {0};
        struct sl_config *config =
            config_of((const char *const[]){"node_name", bad_names[_i], NULL});
        ck_assert_int_eq(sl_cluster_name(config, name, &why), SL_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(why.text, bad_names[_i]));
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    const char *settings[9];
    bool reads, wanted;
} roles[] = {
    {{NULL}, false, false},
    {{"peers", "b@h:1", NULL}, false, true}, /* no fabric: reported at the start */
    {{"peers", "b@h:1", "fabric", "tcp", NULL}, true, true},
    {{"cluster_listen", "h:1", "fabric", "tcp", NULL}, false, true},
    {{"peers_file", "/p", "fabric", "tcp", NULL}, false, false},
    {{"peers_file", "/p", "fabric", "tcp", "cluster_keys", "/k", NULL}, true, true},
    {{"directory", "redis", NULL}, false, false},
    {{"directory", "redis", "fabric", "tcp", NULL}, false, false},
    {{"directory", "redis", "cluster_keys", "/k", NULL}, false, false},
    {{"directory", "redis", "fabric", "tcp", "cluster_keys", "/k", NULL}, true, true},
    {{"directory", "redis", "fabric", "tcp", "cluster_plaintext", "true", NULL}, true, true},
    {{"directory", "embedded", "fabric", "tcp", "cluster_keys", "/k", NULL}, false, false},
};
START_TEST(a_node_reads_from_others_when_it_can_know_some)
    {
        struct sl_config *config = config_of(roles[_i].settings);
        ck_assert_int_eq(sl_cluster_reads(config), roles[_i].reads);
        ck_assert_int_eq(sl_cluster_wanted(config), roles[_i].wanted);
        sl_config_destroy(&config);
    }
END_TEST

#define PEER(n) "n" #n "@h:1,"
#define TEN(n) \
    PEER(n##0) \
    PEER(n##1) \
    PEER(n##2) PEER(n##3) PEER(n##4) PEER(n##5) PEER(n##6) PEER(n##7) PEER(n##8) PEER(n##9)
#define SIXTY TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6)
static const struct {
    const char *settings[9];
    const char *says; /* NULL: well-formed */
} lists[] = {
    {{NULL}, NULL},
    {{"peers", "b@h:1", NULL}, NULL},
    {{"peers", " b@10.0.0.1:1 ,, c@[::1]:2,", NULL}, NULL},
    {{"peers", "a@h:1,b@h:1", NULL}, NULL}, /* itself: one list serves all nodes */
    {{"peers", "a@h:1,b@h:1,a@h:2", NULL}, "peers: 'a' is listed twice"},
    {{"peers", "b", NULL}, "peers: 'b' is not NAME@HOST:PORT"},
    {{"peers", "b@h", NULL}, "'b@h' is not NAME@HOST:PORT"},
    {{"peers", "b@h:", NULL}, "'b@h:' is not"},
    {{"peers", "b@:1", NULL}, "'b@:1' is not"},
    {{"peers", "b@h:x", NULL}, "'b@h:x' is not"},
    {{"peers", "b@h:0", NULL}, "'b@h:0' is not"},
    {{"peers", "b@h:65536", NULL}, "'b@h:65536' is not"},
    {{"peers", "b@h:1 c@h:1", NULL}, "'b@h:1 c@h:1' is not"},
    {{"peers", "b@h!:1", NULL}, "'b@h!:1' is not"}, /* nor takes ZeroMQ it */
    {{"peers", "b@*:1", NULL}, "'b@*:1' is not"},
    {{"peers", "b@h/x:1", NULL}, "'b@h/x:1' is not"},
    {{"peers", "b@h;c@h:1", NULL}, "'b@h;c@h:1' is not"},
    {{"peers", "b@h:1:2", NULL}, "'b@h:1:2' is not"},
    {{"peers", "b@[h]:1", NULL}, "'b@[h]:1' is not"},
    {{"peers", "b@[]:1", NULL}, "'b@[]:1' is not"},
    {{"peers", "b@host-1.a_b:1,c@[fe80::1%eth0]:1,d@::1:1", NULL}, NULL},
    {{"peers", "@h:1", NULL}, "peers: '' is not a node name"},
    {{"peers", "b/c@h:1", NULL}, "'b/c' is not a node name"},
    {{"peers", "0123456789012345678901234567890x@h:1", NULL}, "is not a node name"},
    {{"peers", "b@h:1,c@h:1,b@h:2", NULL}, "peers: 'b' is listed twice"},
    {{"peers", SIXTY "b@h:1,c@h:1,d@h:1,e@h:1", NULL}, NULL},
    {{"peers", SIXTY "b@h:1,c@h:1,d@h:1,e@h:1,f@h:1", NULL}, "peers: more than 64"},
    {{"cluster_listen", "h", NULL}, "cluster_listen: 'h' is not HOST:PORT"},
    {{"cluster_listen", "*:7411", NULL}, NULL},
    {{"cluster_listen", "h:70000", NULL}, "cluster_listen: 'h:70000'"},
    {{"cluster_listen", "h:1", "node_name", "a b", NULL}, "node_name: 'a b'"},
    {{"cluster_listen", "*:1", "fabric", "tcp", "fabric_address", "10.0.0.1, [::1]:5", NULL}, NULL},
    {{"cluster_listen", "*:1", "fabric", "tcp", "fabric_address", "10.0.0.1,x", NULL},
     "fabric_address: entry 2, 'x', is not IP:PORT"},
    {{"cluster_listen", "*:1", "fabric", "tcp", "fabric_address", "10.0.0.1:x", NULL},
     "entry 1, '10.0.0.1:x'"},
    {{"cluster_listen", "*:1", "fabric", "tcp", "fabric_address", "10.0.0.1,", NULL},
     "entry 2 is empty"},
    {{"cluster_listen", "*:1", "fabric", "tcp", "fabric_address", ",10.0.0.1", NULL},
     "entry 1, ''"},
    {{"fabric_address", "::,::,::,::,::,::,::,::,::,::,::,::,::,::,::,::", NULL}, NULL},
    {{"fabric_address", "::,::,::,::,::,::,::,::,::,::,::,::,::,::,::,::,::", NULL},
     "fabric_address: more than 16 addresses"},
    {{"cluster_listen", "*:1", "fabric", "off", NULL}, "set fabric"},
    {{"peers", "b@h:1", "fabric", "off", NULL}, "set fabric"},
    {{"fabric", "verbs", "nic", "n0,,n1", NULL}, "nic: entry 1 of 'n0,,n1' is empty"},
    {{"cluster_listen", "*:1", "fabric", "verbs", "nic", "n0,,n1", NULL},
     "nic: entry 1 of 'n0,,n1' is empty"},
};
START_TEST(a_list_that_a_transporter_would_end_at_is_named_before)
    {
        struct sl_config *config = config_of(lists[_i].settings);
        struct sl_error why = {0};
        if (sl_config_text(config, SL_SET_node_name)[0] == '\0') {
            ck_assert_int_eq(sl_config_set(config, "node_name", "a", "test", NULL), SL_OK);
        }
        if (strcmp(sl_config_source(config, SL_SET_fabric), "default") == 0) {
            ck_assert_int_eq(sl_config_set(config, "fabric", "tcp", "test", NULL), SL_OK);
        }

        sl_err err = sl_cluster_check(config, &why);

        ck_assert_msg(err == (lists[_i].says != NULL ? SL_ERR_CONFIG : SL_OK), "%s", why.text);
        ck_assert_msg(err == SL_OK || strstr(why.text, lists[_i].says) != NULL, "%s", why.text);
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    const char *text;
    bool good, any;
} addresses[] = {
    {"10.0.0.1:1", true, false},
    {"10.0.0.1:65535", true, false},
    {"[fe80::1]:7411", true, false},
    {"0.0.0.0:1", true, true},
    {"[::]:1", true, true},
    {"", false, false},
    {":1", false, false},
    {"10.0.0.1", false, false},
    {"10.0.0.1:", false, false},
    {"10.0.0.1:0", false, false},
    {"10.0.0.1:65536", false, false},
    {"10.0.0.1:1 ", false, false},
    {"10.0.0.1:+1", false, false},
    {"10.0.0.1:000001", false, false},
    {"host:1", false, false},
    {"*:1", false, false},
    {"fe80::1:1", false, false},
    {"[10.0.0.1]:1", false, false},
    {"[fe80::1]", false, false},
    {"[]:1", false, false},
    {"10.0.0.1:1;10.0.0.2:1", false, false},
    {"10.0.0.1.10.0.0.1.10.0.0.1.10.0.0.1.10.0.0.1.10.0.0.1.10.0.0.1.10.0.0.1:1", false, false},
};
START_TEST(an_address_is_numbers)
    {
        bool any = false;
        ck_assert_int_eq(sl_cluster_address(addresses[_i].text, &any), addresses[_i].good);
        ck_assert_int_eq(any, addresses[_i].any);
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("cluster");
    TCase *tests = tcase_create("cluster");
    tcase_add_test(tests, one_name_serves_peers_and_directory);
    tcase_add_loop_test(tests, a_bad_name_is_named, 0, SL_COUNT(bad_names));
    tcase_add_loop_test(tests, a_node_reads_from_others_when_it_can_know_some, 0, SL_COUNT(roles));
    tcase_add_loop_test(tests, a_list_that_a_transporter_would_end_at_is_named_before, 0,
                        SL_COUNT(lists));
    tcase_add_loop_test(tests, an_address_is_numbers, 0, SL_COUNT(addresses));
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

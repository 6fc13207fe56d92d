/* tests/unit/runtime/net/records_test.c - handshakes by key, and our own TLS records, against
 * libssl's SSL_read and SSL_write. */
#include "runtime/net/fabric/tcp/handshake.h"

#include <check.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#define STREAM (3 * SL_MIB + 12345)

static const uint8_t id[SL_WIRE_ID_BYTES] = "who asks here", psk[SL_WIRE_PSK_BYTES] = "a key of 32";
static enum sl_aead_by by;
static struct sl_tls *tls;
static struct sl_handshake *ours;
static struct sl_records in;
static struct sl_records out;
static SSL_CTX *context; /* of libssl: the other side */
static SSL *theirs;
static const char *psk_hides; /* of the other side: another key; NULL: the right one */
static unsigned char plain[STREAM], got[STREAM];

static SSL_SESSION *session_of(SSL *ssl)
{
    static const unsigned char suite[2] = {0x13, 0x01};
    uint8_t key[SL_WIRE_PSK_BYTES];
    memcpy(key, psk, sizeof(key));
    if (psk_hides != NULL) {
        key[31] ^= 1;
    }
    SSL_SESSION *session = SSL_SESSION_new();
    ck_assert_int_eq(SSL_SESSION_set1_master_key(session, key, sizeof(key)), 1);
    ck_assert_int_eq(SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite)), 1);
    ck_assert_int_eq(SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION), 1);
    return session;
}

static int their_use(SSL *ssl, const EVP_MD *digest, const unsigned char **name, size_t *bytes,
                     SSL_SESSION **session)
{
    (void)digest;
    *name = id;
    *bytes = sizeof(id);
    *session = session_of(ssl);
    return 1;
}

static int their_find(SSL *ssl, const unsigned char *name, size_t bytes, SSL_SESSION **session)
{
    *session = bytes == sizeof(id) && memcmp(name, id, bytes) == 0 ? session_of(ssl) : NULL;
    return 1;
}

static bool find(void *unused, const uint8_t name[SL_WIRE_ID_BYTES], uint8_t key[SL_WIRE_PSK_BYTES])
{
    (void)unused;
    memcpy(key, psk, sizeof(psk));
    return memcmp(name, id, sizeof(id)) == 0;
}

static struct sl_handshake *begin(bool answers)
{
    struct sl_error why = {0};
    struct sl_handshake *made = NULL;
    const struct sl_handshake_options options = {
        .answers = answers, .id = id, .key = psk, .find = find};
    sl_err err = sl_handshake_begin(tls, &options, &made, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    return made;
}

static void open_context(void)
{
    struct sl_error why = {0};
    psk_hides = NULL;
    for (uint32_t i = 0; i < STREAM; i++) {
        plain[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    ck_assert_msg(sl_tls_open(by, &tls, &why) == SL_OK, "%s", why.text);
    context = SSL_CTX_new(TLS_method());
    SSL_CTX_set_psk_use_session_callback(context, their_use);
    SSL_CTX_set_psk_find_session_callback(context, their_find);
    SSL_CTX_set_num_tickets(context, 0);
}

static void setup(void)
{
    by = SL_AEAD_BEST;
    open_context();
}

static void setup_libcrypto(void)
{
    by = SL_AEAD_LIBCRYPTO;
    open_context();
}

static void open_theirs(bool answers)
{
    theirs = SSL_new(context);
    SSL_set_bio(theirs, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if (answers) {
        SSL_set_accept_state(theirs);
    } else {
        SSL_set_connect_state(theirs);
    }
    ck_assert_int_eq(sl_records_init(&in, NULL), SL_OK);
    ck_assert_int_eq(sl_records_init(&out, NULL), SL_OK);
}

static void teardown(void)
{
    sl_handshake_end(&ours);
    sl_records_fini(&in);
    sl_records_fini(&out);
    SSL_free(theirs);
    SSL_CTX_free(context);
    sl_tls_close(&tls);
    theirs = NULL;
}

/* Exchanges the handshake's messages, `cut` bytes at a time. Returns our result. */
static sl_err shake(bool answers, uint32_t cut, struct sl_error *why)
{
    unsigned char bytes[4096];
    ours = begin(answers);
    open_theirs(!answers);
    sl_err err = answers ? SL_ERR_BUSY : sl_handshake_step(ours, "", 0, why);
    int their_end = 0;
    for (unsigned round = 0; round < 20000 && (err == SL_ERR_BUSY || their_end != 1); round++) {
        uint32_t said = sl_handshake_output(ours, bytes, cut);
        if (said > 0) {
            ck_assert_int_eq(BIO_write(SSL_get_rbio(theirs), bytes, (int)said), (int)said);
        }
        their_end = SSL_do_handshake(theirs);
        if (their_end != 1 && SSL_get_error(theirs, their_end) == SSL_ERROR_SSL) {
            return err == SL_ERR_BUSY ? SL_ERR_CANCELLED : err; /* they gave up */
        }
        int heard = BIO_read(SSL_get_wbio(theirs), bytes, (int)cut);
        if (heard > 0 && err == SL_ERR_BUSY) {
            err = sl_handshake_step(ours, bytes, (uint32_t)heard, why);
        }
        if (err != SL_OK && err != SL_ERR_BUSY) {
            return err;
        }
    }
    return err;
}

static void shaken(bool answers, uint32_t cut)
{
    struct sl_error why = {0};
    sl_err err = shake(answers, cut, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    ck_assert_msg(sl_handshake_keys(ours, &in, &out, &why) == SL_OK, "%s", why.text);
}

/* Seals the parts and has SSL_read take them. */
static void send_ours(struct iovec *parts, const uint8_t *heads, size_t count, unsigned char *to,
                      size_t length_bytes)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    const struct sl_seal_job job = {
        .sealer = &out, .message = &message, .parts = parts, .heads = heads};
    size_t came = 0;
    while (message.msg_iovlen > 0) {
        ck_assert_int_eq(sl_seal_fill(&job), 0);
        ck_assert_uint_gt(out.end, 0);
        ck_assert_int_eq(BIO_write(SSL_get_rbio(theirs), out.staging, (int)out.end), (int)out.end);
        out.begin = out.end;
        for (int more = 1; more > 0;) {
            more = SSL_read(theirs, to + came, (int)(length_bytes - came));
            came += more > 0 ? (size_t)more : 0;
        }
    }
    ck_assert_uint_eq(came, length_bytes);
}

/* SSL_write sends it, and it is opened into the runs, `cut` bytes of the stream at a time. */
static void send_theirs(struct sl_runs to, uint32_t length_bytes, uint32_t cut,
                        struct sl_digest_stream *digest)
{
    ck_assert_int_eq(SSL_write(theirs, plain, (int)length_bytes), (int)length_bytes);
    uint32_t came = 0;
    while (came < length_bytes) {
        int32_t taken = sl_opener_take(&in, to, length_bytes - came, digest);
        ck_assert_int_ge(taken, 0);
        if (taken > 0) {
            sl_runs_skip(&to, (uint64_t)taken);
            came += (uint32_t)taken;
            continue;
        }
        struct iovec space = sl_opener_space(&in);
        ck_assert_uint_ge(BIO_ctrl_pending(SSL_get_wbio(theirs)),
                          sl_opener_bytes_missing(&in, length_bytes - came) > cut ? 1 : 1);
        int more = BIO_read(SSL_get_wbio(theirs), space.iov_base, (int)SL_MIN(space.iov_len, cut));
        ck_assert_int_gt(more, 0);
        sl_opener_received(&in, (uint32_t)more);
    }
    ck_assert_int_eq(sl_opener_take(&in, to, 1, NULL), 0);
}

static const uint32_t cuts[] = {1, 7, 100, 4096};
START_TEST(libssl_understands_us)
    {
        bool answers = (_i & 1) != 0;
        shaken(answers, cuts[_i / 2]);
        ck_assert_int_eq(SSL_session_reused(theirs), 1);
        ck_assert_str_eq(SSL_get_version(theirs), "TLSv1.3");
        sl_records_grow(&out);
        sl_records_grow(&in);
        unsigned char head[24] = "a head";
        struct iovec parts[] = {{head, sizeof(head)},
                                {plain, 16384 + 7},
                                {plain + 20000, 1},
                                {head, sizeof(head)},
                                {plain, SL_MIB}};
        const uint8_t heads[] = {1, 0, 0, 1, 0};
        size_t whole = 24 + 16384 + 7 + 1 + 24 + SL_MIB;
        send_ours(parts, heads, SL_COUNT(parts), got, whole);
        ck_assert_mem_eq(got, head, 24);
        ck_assert_mem_eq(got + 24, plain, 16384 + 7);
        ck_assert_uint_eq(got[24 + 16384 + 7], plain[20000]);
        ck_assert_mem_eq(got + 24 + 16384 + 8, head, 24);
        ck_assert_mem_eq(got + 48 + 16384 + 8, plain, SL_MIB);
    }
END_TEST

static const uint32_t sizes[] = {1, 255, 256, 300, 16383, 16384, 16385, 100000, STREAM};
START_TEST(we_understand_libssl)
    {
        enum { RUNS = 40 };
        static struct sl_run runs[RUNS];
        struct sl_digest_stream digest;
        uint32_t length = sizes[_i], at = 0;
        shaken(_i % 2 == 0, 500);
        if (_i % 3 == 0) {
            sl_records_grow(&in);
        }
        sl_digest_start(&digest);
        memset(got, 0, sizeof(got));
        send_theirs(sl_runs_of(got, length), length, 5000, &digest);
        ck_assert_mem_eq(got, plain, length);
        ck_assert(sl_digest_equal(sl_digest_finish(&digest), sl_digest_of(plain, length)));
        uint32_t count = SL_MIN(length, (uint32_t)RUNS);
        for (uint32_t i = 0; i < count; i++) { /* the same, to many places */
            uint32_t bytes = i + 1 == count ? length - at : length / count;
            runs[i] = (struct sl_run){i + 1 < count ? &runs[i + 1] : NULL, got + at, bytes};
            at += bytes;
        }
        memset(got, 0, sizeof(got));
        sl_digest_start(&digest);
        send_theirs(sl_runs_from(&runs[0]), length, 100000, &digest);
        ck_assert_mem_eq(got, plain, length);
        ck_assert(sl_digest_equal(sl_digest_finish(&digest), sl_digest_of(plain, length)));
    }
END_TEST

START_TEST(keys_change_in_both_directions)
    {
        const uint8_t heads[] = {0};
        shaken(_i != 0, 500);
        out.key.update_after = 3;
        for (int round = 0; round < 4; round++) {
            struct iovec part = {plain, 100000};
            send_ours(&part, heads, 1, got, 100000); /* 7 records */
            ck_assert_mem_eq(got, plain, 100000);
            ck_assert_uint_le(out.key.sequence, 3);
            ck_assert_int_eq(SSL_key_update(theirs, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
            send_theirs(sl_runs_of(got, 50000), 50000, 3000, NULL);
            ck_assert_mem_eq(got, plain, 50000);
            ck_assert_uint_le(in.key.sequence, 4);
        }
    }
END_TEST

/* A flipped bit anywhere in a record, a duplicated record, and a missing one. */
START_TEST(what_was_changed_is_not_opened)
    {
        unsigned char record[3000];
        shaken(true, 500);
        ck_assert_int_eq(SSL_write(theirs, plain, 1000), 1000);
        ck_assert_int_eq(SSL_write(theirs, plain, 1000), 1000);
        int bytes = BIO_read(SSL_get_wbio(theirs), record, sizeof(record));
        ck_assert_int_eq(bytes, 2 * 1022);
        struct iovec space = sl_opener_space(&in);
        uint32_t at = (uint32_t)_i * 7, first = 0, length = 1022;
        int32_t want = -EBADMSG;
        if (at < 1022) {
            record[at] ^= 1;
            want = at < 3 || at == 3 ? -EPROTO : -EBADMSG;
        } else {
            first = 1022; /* the second one without the first */
        }
        memcpy(space.iov_base, record + first, length);
        sl_opener_received(&in, length);
        memset(got, 0x55, 2000);
        int32_t taken = sl_opener_take(&in, sl_runs_of(got, 1000), 1000, NULL);
        if (at == 3 || at == 4) { /* its length */
            ck_assert_int_le(taken, 0);
            return;
        }
        ck_assert_int_eq(taken, want);
        ck_assert_int_eq(sl_opener_take(&in, sl_runs_of(got, 1000), 1000, NULL),
                         want); /* it stays so */
    }
END_TEST

START_TEST(a_record_that_comes_again_is_refused)
    {
        unsigned char record[2000];
        shaken(false, 500);
        ck_assert_int_eq(SSL_write(theirs, plain, 1000), 1000);
        int bytes = BIO_read(SSL_get_wbio(theirs), record, sizeof(record));
        for (int i = 0; i < 2; i++) {
            struct iovec space = sl_opener_space(&in);
            memcpy(space.iov_base, record, (size_t)bytes);
            sl_opener_received(&in, (uint32_t)bytes);
            ck_assert_int_eq(sl_opener_take(&in, sl_runs_of(got, 1000), 1000, NULL),
                             i == 0 ? 1000 : -EBADMSG);
        }
    }
END_TEST

START_TEST(an_end_is_an_end)
    {
        unsigned char bytes[100];
        shaken(false, 500);
        ck_assert_int_eq(SSL_shutdown(theirs), 0);
        int alert = BIO_read(SSL_get_wbio(theirs), bytes, sizeof(bytes));
        struct iovec space = sl_opener_space(&in);
        memcpy(space.iov_base, bytes, (size_t)alert);
        sl_opener_received(&in, (uint32_t)alert);
        ck_assert_int_eq(sl_opener_take(&in, sl_runs_of(got, 16), 16, NULL), -ECONNRESET);
    }
END_TEST

START_TEST(another_key_is_no_key)
    {
        struct sl_error why = {0};
        psk_hides = "one bit is wrong";
        sl_err err = shake(_i != 0, 500, &why);
        ck_assert(err == SL_ERR_PERMISSION || err == SL_ERR_CANCELLED);
        ck_assert_int_ne(sl_handshake_keys(ours, &in, &out, NULL), SL_OK);
    }
END_TEST

static int knows_nobody(SSL *ssl, const EVP_MD *digest, const unsigned char **name, size_t *bytes,
                        SSL_SESSION **session)
{
    (void)ssl;
    (void)digest;
    *name = NULL;
    *bytes = 0;
    *session = NULL;
    return 1;
}

START_TEST(without_a_key_nobody_comes_in)
    {
        struct sl_error why = {0};
        if (_i == 0) { /* it does not name one */
            SSL_CTX_set_psk_use_session_callback(context, knows_nobody);
        } else { /* an older TLS */
            SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
        }
        ck_assert_int_eq(shake(true, 500, &why), SL_ERR_PERMISSION);
    }
END_TEST

START_TEST(a_handshake_has_a_bound)
    {
        unsigned char noise[4096];
        struct sl_error why = {0};
        /* A record of a handshake that says it has 16 MiB. */
        const unsigned char head[] = {22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff};
        ours = begin(true);
        open_theirs(false);
        memset(noise, 0, sizeof(noise));
        sl_err err = sl_handshake_step(ours, head, sizeof(head), &why);
        for (int i = 0; i < 100 && err == SL_ERR_BUSY; i++) {
            err = sl_handshake_step(ours, noise, sizeof(noise), &why);
        }
        ck_assert(err == SL_ERR_PERMISSION || err == SL_ERR_PROTOCOL);
    }
END_TEST

static void add_tests(TCase *tests)
{
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, libssl_understands_us, 0, 2 * SL_COUNT(cuts));
    tcase_add_loop_test(tests, we_understand_libssl, 0, SL_COUNT(sizes));
    tcase_add_loop_test(tests, keys_change_in_both_directions, 0, 2);
    tcase_add_loop_test(tests, what_was_changed_is_not_opened, 0, 147);
    tcase_add_test(tests, a_record_that_comes_again_is_refused);
    tcase_add_test(tests, an_end_is_an_end);
    tcase_add_loop_test(tests, another_key_is_no_key, 0, 2);
    tcase_add_loop_test(tests, without_a_key_nobody_comes_in, 0, 2);
    tcase_add_test(tests, a_handshake_has_a_bound);
}

static Suite *suite(void)
{
    static const struct {
        const char *name;
        SFun setup;
    } cases[] = {{"tls, the best AES that is here", setup}, {"tls, libcrypto's", setup_libcrypto}};
    Suite *all = suite_create("records");
    for (uint32_t i = 0; i < SL_COUNT(cases); i++) {
        TCase *tests = tcase_create(cases[i].name);
        tcase_add_checked_fixture(tests, cases[i].setup, teardown);
        add_tests(tests);
        suite_add_tcase(all, tests);
    }
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

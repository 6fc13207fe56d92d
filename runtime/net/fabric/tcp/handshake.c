/* runtime/net/fabric/tcp/handshake.c - see handshake.h. Traffic secrets are received through the
 * key log callback: libssl 3.0 has no other interface for them. They are never logged. */
#include "runtime/net/fabric/tcp/handshake.h"
#include "runtime/base/sl_hex.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#define SUITES "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define GROUPS "X25519:P-256"

struct sl_tls {
    SSL_CTX *context;
    enum sl_aead_by by;
};
struct sl_handshake {
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
    enum sl_aead_by by;
    bool answers, over, has_secret[2];
    uint8_t id[SL_WIRE_ID_BYTES], key[SL_WIRE_PSK_BYTES];
    uint8_t secrets[2][SL_RECORD_SECRET_BYTES]; /* of client and server */
    sl_psk_find_fn find;
    void *context;
    uint64_t fed_bytes;
};

static sl_err fail_ssl(struct sl_error *why, sl_err code, const char *what)
{
    char text[120] = "no reason";
    unsigned long reason = ERR_peek_last_error();
    if (reason != 0) {
        ERR_error_string_n(reason, text, sizeof(text));
    }
    ERR_clear_error();
    return sl_fail(why, code, "%s: %s", what, text);
}

/* ---- callbacks of libssl ---- */

/* Makes an artificial session, which is how libssl accepts an external PSK. */
static SSL_SESSION *psk_session(SSL *ssl, const uint8_t *key)
{
    static const unsigned char suite[2] = {0x13, 0x01};
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session == NULL || cipher == NULL ||
        SSL_SESSION_set1_master_key(session, key, SL_WIRE_PSK_BYTES) != 1 ||
        SSL_SESSION_set_cipher(session, cipher) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
        SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

static int psk_use(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_bytes,
                   SSL_SESSION **session)
{
    struct sl_handshake *self = SSL_get_app_data(ssl);
    *session = NULL;
    if (digest != NULL && EVP_MD_get_type(digest) != NID_sha256) {
        return 1; /* the peer wants another hash than our key's */
    }
    *session = psk_session(ssl, self->key);
    *id = self->id;
    *id_bytes = sizeof(self->id);
    return *session != NULL;
}

static int psk_find(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
    struct sl_handshake *self = SSL_get_app_data(ssl);
    uint8_t key[SL_WIRE_PSK_BYTES];
    *session = NULL;
    if (id_bytes != SL_WIRE_ID_BYTES || !self->find(self->context, id, key)) {
        return 1; /* unknown: without a certificate the handshake fails */
    }
    memcpy(self->id, id, sizeof(self->id));
    *session = psk_session(ssl, key);
    OPENSSL_cleanse(key, sizeof(key));
    return *session != NULL;
}

/* Parses "LABEL RANDOM SECRET", in hexadecimal digits. */
static void secret_came(const SSL *ssl, const char *line)
{
    static const char *const labels[2] = {"CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 "};
    struct sl_handshake *self = SSL_get_app_data(ssl);
    for (unsigned i = 0; i < 2; i++) {
        size_t label_bytes = strlen(labels[i]);
        const char *secret =
            strncmp(line, labels[i], label_bytes) == 0 ? strchr(line + label_bytes, ' ') : NULL;
        if (secret != NULL && strlen(secret + 1) == 2 * SL_RECORD_SECRET_BYTES) {
            self->has_secret[i] = sl_hex_read(self->secrets[i], secret + 1,
                                              SL_RECORD_SECRET_BYTES) == 2 * SL_RECORD_SECRET_BYTES;
        }
    }
}

/* ---- contexts ---- */

sl_err sl_tls_open(enum sl_aead_by by, struct sl_tls **out, struct sl_error *why)
{
    struct sl_tls *tls = calloc(1, sizeof(*tls));
    if (tls == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for TLS");
    }
    tls->by = by;
    ERR_clear_error();
    SSL_CTX *context = tls->context = SSL_CTX_new(TLS_method());
    if (context == NULL || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, SUITES) != 1 ||
        SSL_CTX_set1_groups_list(context, GROUPS) != 1 ||
        SSL_CTX_set_num_tickets(context, 0) != 1) {
        sl_err err = fail_ssl(why, SL_ERR_UNSUPPORTED, "TLS 1.3");
        sl_tls_close(&tls);
        return err;
    }
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    (void)SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_psk_use_session_callback(context, psk_use);
    SSL_CTX_set_psk_find_session_callback(context, psk_find);
    SSL_CTX_set_keylog_callback(context, secret_came);
    *out = tls;
    return SL_OK;
}

void sl_tls_close(struct sl_tls **tls)
{
    if (*tls != NULL) {
        SSL_CTX_free((*tls)->context);
        free(*tls);
        *tls = NULL;
    }
}

/* ---- a handshake ---- */

sl_err sl_handshake_begin(struct sl_tls *tls, const struct sl_handshake_options *options,
                          struct sl_handshake **out, struct sl_error *why)
{
    struct sl_handshake *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a handshake");
    }
    self->by = tls->by;
    self->answers = options->answers;
    self->find = options->find;
    self->context = options->context;
    if (!self->answers) {
        memcpy(self->id, options->id, sizeof(self->id));
        memcpy(self->key, options->key, sizeof(self->key));
    }
    ERR_clear_error();
    self->ssl = SSL_new(tls->context);
    self->in = BIO_new(BIO_s_mem());
    self->out = BIO_new(BIO_s_mem());
    if (self->ssl == NULL || self->in == NULL || self->out == NULL ||
        SSL_set_app_data(self->ssl, self) != 1) {
        BIO_free(self->in);
        BIO_free(self->out);
        self->in = self->out = NULL;
        sl_err err = fail_ssl(why, SL_ERR_NO_MEMORY, "a handshake");
        sl_handshake_end(&self);
        return err;
    }
    SSL_set_bio(self->ssl, self->in, self->out);
    if (self->answers) {
        SSL_set_accept_state(self->ssl);
    } else { /* no certificate is accepted, because no issuer is trusted */
        SSL_set_verify(self->ssl, SSL_VERIFY_PEER, NULL);
        SSL_set_connect_state(self->ssl);
    }
    *out = self;
    return SL_OK;
}

void sl_handshake_end(struct sl_handshake **handshake)
{
    struct sl_handshake *self = *handshake;
    if (self != NULL) {
        SSL_free(self->ssl);
        OPENSSL_cleanse(self, sizeof(*self));
        free(self);
        *handshake = NULL;
    }
}

sl_err sl_handshake_step(struct sl_handshake *self, const void *bytes, uint32_t length_bytes,
                         struct sl_error *why)
{
    self->fed_bytes += length_bytes;
    if (self->fed_bytes > SL_HANDSHAKE_BYTES_MAX) {
        return sl_fail(why, SL_ERR_PROTOCOL, "a handshake of more than %u bytes",
                       (unsigned)SL_HANDSHAKE_BYTES_MAX);
    }
    if (length_bytes > 0 && BIO_write(self->in, bytes, (int)length_bytes) != (int)length_bytes) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a handshake");
    }
    ERR_clear_error();
    int result = SSL_do_handshake(self->ssl);
    if (result == 1) {
        /* Requires the key: a certificate would also complete a handshake. */
        self->over = SSL_session_reused(self->ssl) == 1;
        return self->over ? SL_OK
                          : sl_fail(why, SL_ERR_PERMISSION, "a handshake without the peer's key");
    }
    int reason = SSL_get_error(self->ssl, result);
    if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) {
        return SL_ERR_BUSY;
    }
    return fail_ssl(why, SL_ERR_PERMISSION, "handshake");
}

uint32_t sl_handshake_output(struct sl_handshake *self, void *to, uint32_t room_bytes)
{
    int got = BIO_read(self->out, to, (int)room_bytes);
    return got > 0 ? (uint32_t)got : 0;
}

sl_err sl_handshake_keys(struct sl_handshake *self, struct sl_records *opener,
                         struct sl_records *sealer, struct sl_error *why)
{
    const SSL_CIPHER *cipher = SSL_get_current_cipher(self->ssl);
    if (!self->over || cipher == NULL || !self->has_secret[0] || !self->has_secret[1]) {
        return sl_fail(why, SL_ERR_PROTOCOL, "the handshake is not complete");
    }
    uint16_t suite = (uint16_t)SSL_CIPHER_get_protocol_id(cipher);
    const uint8_t *ours = self->secrets[self->answers], *theirs = self->secrets[!self->answers];
    sl_err err = sl_record_key_init(&sealer->key, suite, ours, true, self->by, why);
    if (err == SL_OK) {
        err = sl_record_key_init(&opener->key, suite, theirs, false, self->by, why);
    }
    while (err == SL_OK && BIO_ctrl_pending(self->in) > 0) {
        struct iovec space = sl_opener_space(opener);
        if (BIO_ctrl_pending(self->in) > space.iov_len) {
            return sl_fail(why, SL_ERR_PROTOCOL, "too many bytes after the handshake");
        }
        int got = BIO_read(self->in, space.iov_base, (int)space.iov_len);
        sl_opener_received(opener, got > 0 ? (uint32_t)got : 0);
    }
    return err;
}

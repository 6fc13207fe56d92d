/* runtime/net/fabric/core/records.c - see records.h: seals and opens TLS records. */
#include "runtime/net/fabric/core/records.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_ALERT       21u
#define TYPE_HANDSHAKE   22u
#define TYPE_DATA        23u
#define KEY_UPDATE       24u
#define KEY_UPDATE_BYTES 5u
#define ALERT_BYTES      2u
#define STRAIGHT_BYTES   256u /* longer than any alert or handshake message of a connection */

/* ---- keys ---- */

/* HKDF-Expand-Label (RFC 8446, 7.1) to at most 32 bytes: one block of HKDF. */
static bool expand(const uint8_t *secret, const char *label, uint8_t *out, uint32_t out_bytes)
{
    uint8_t info[64], block[32];
    size_t label_bytes = strlen(label);
    SL_ASSERT(label_bytes < 32 && out_bytes <= sizeof(block));
    info[0] = 0;
    info[1] = (uint8_t)out_bytes;
    info[2] = (uint8_t)(6 + label_bytes);
    memcpy(info + 3, "tls13 ", 6);
    memcpy(info + 9, label, label_bytes);
    info[9 + label_bytes] = 0;
    info[10 + label_bytes] = 1;
    bool done = HMAC(EVP_sha256(), secret, SL_RECORD_SECRET_BYTES, info, 11 + label_bytes, block,
                     NULL) != NULL;
    memcpy(out, block, out_bytes);
    OPENSSL_cleanse(block, sizeof(block));
    return done;
}

static bool key_apply(struct sl_record_key *key)
{
    uint8_t bytes[32];
    bool done = expand(key->secret, "key", bytes, sl_aead_key_bytes(key->aead.suite)) &&
                expand(key->secret, "iv", key->iv, sizeof(key->iv)) &&
                sl_aead_key(&key->aead, bytes);
    OPENSSL_cleanse(bytes, sizeof(bytes));
    key->sequence = 0;
    return done;
}

sl_err sl_record_key_init(struct sl_record_key *key, uint16_t suite, const void *secret, bool seals,
                          enum sl_aead_by by, struct sl_error *why)
{
    *key = (struct sl_record_key){.update_after = SL_RECORD_KEY_RECORDS};
    sl_err err = sl_aead_init(&key->aead, suite, seals, by, why);
    if (err != SL_OK) {
        return err;
    }
    memcpy(key->secret, secret, sizeof(key->secret));
    return key_apply(key) ? SL_OK : sl_fail(why, SL_ERR_NO_MEMORY, "no key from libcrypto");
}

/* Changes to the next secret (RFC 8446, 7.2). */
static bool key_update(struct sl_record_key *key)
{
    uint8_t next[SL_RECORD_SECRET_BYTES];
    bool done = expand(key->secret, "traffic upd", next, sizeof(next));
    memcpy(key->secret, next, sizeof(next));
    OPENSSL_cleanse(next, sizeof(next));
    return done && key_apply(key);
}

/* Starts a record with its nonce; its head is additional authenticated data. */
static bool record_begin(struct sl_record_key *key, const uint8_t *head)
{
    uint8_t nonce[SL_RECORD_IV_BYTES];
    memcpy(nonce, key->iv, sizeof(nonce));
    for (unsigned i = 0; i < 8; i++) {
        nonce[11 - i] ^= (uint8_t)(key->sequence >> (8 * i));
    }
    key->sequence++;
    return sl_aead_begin(&key->aead, nonce, head, SL_RECORD_HEAD_BYTES);
}

/* ---- staging ---- */

sl_err sl_records_init(struct sl_records *records, struct sl_error *why)
{
    *records = (struct sl_records){.staging = malloc(SL_STAGING_SMALL_BYTES),
                                   .room_bytes = SL_STAGING_SMALL_BYTES};
    return records->staging != NULL ? SL_OK
                                    : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for records");
}

void sl_records_fini(struct sl_records *records)
{
    sl_aead_fini(&records->key.aead);
    free(records->staging);
    OPENSSL_cleanse(records, sizeof(*records));
}

void sl_records_grow(struct sl_records *records)
{
    if (records->room_bytes < SL_STAGING_LARGE_BYTES && !records->clear) {
        unsigned char *staging = realloc(records->staging, SL_STAGING_LARGE_BYTES);
        if (staging != NULL) {
            records->staging = staging;
            records->room_bytes = SL_STAGING_LARGE_BYTES;
        }
    }
}

/* ---- opening ---- */

struct iovec sl_opener_space(struct sl_records *opener)
{
    SL_ASSERT(opener->plain_bytes == 0);
    if (opener->begin > 0) {
        memmove(opener->staging, opener->staging + opener->begin, opener->end - opener->begin);
        opener->end -= opener->begin;
        opener->begin = 0;
    }
    SL_ASSERT(opener->end < opener->room_bytes); /* a complete record is always opened first */
    return (struct iovec){.iov_base = opener->staging + opener->end,
                          .iov_len = opener->room_bytes - opener->end};
}

void sl_opener_received(struct sl_records *opener, uint32_t length_bytes)
{
    if (opener->clear) {
        opener->straight_bytes = SL_MIN(length_bytes, opener->asked_bytes);
        opener->plain_bytes += length_bytes - opener->straight_bytes;
        return;
    }
    SL_ASSERT(length_bytes <= opener->room_bytes - opener->end);
    opener->end += length_bytes;
}

uint32_t sl_opener_bytes_missing(const struct sl_records *opener, uint32_t left_bytes)
{
    uint32_t here_bytes = opener->end - opener->begin + opener->plain_bytes;
    uint32_t room_bytes = opener->room_bytes - (opener->end - opener->begin);
    uint32_t left = left_bytes + SL_RECORD_OVER_BYTES;
    return left <= here_bytes ? 1 : SL_MIN(left - here_bytes, room_bytes);
}

uint32_t sl_opener_parts(struct sl_records *opener, struct sl_runs to, uint32_t left_bytes,
                         struct iovec parts[SL_OPENER_PARTS], uint32_t *low_bytes)
{
    uint32_t count = 0;
    if (!opener->clear) {
        parts[0] = sl_opener_space(opener);
        *low_bytes = SL_MIN(
            sl_opener_bytes_missing(opener, left_bytes == 0 ? SL_WIRE_ANSWER_BYTES : left_bytes),
            (uint32_t)SL_OPENER_SLICE_BYTES);
        return 1;
    }
    SL_ASSERT(opener->straight_bytes == 0 && (left_bytes == 0 || opener->plain_bytes == 0));
    opener->plain_at = opener->plain_bytes == 0 ? 0 : opener->plain_at;
    opener->asked_bytes =
        (uint32_t)sl_runs_parts(to, SL_MIN(left_bytes, (uint32_t)SL_OPENER_SLICE_BYTES), parts,
                                SL_OPENER_PARTS - 1, &count);
    *low_bytes = opener->asked_bytes;
    if (left_bytes == 0 ||
        (opener->asked_bytes == left_bytes && left_bytes > SL_WIRE_ANSWER_BYTES)) {
        parts[count] = (struct iovec){
            .iov_base = opener->staging + opener->plain_at + opener->plain_bytes,
            .iov_len = SL_WIRE_ANSWER_BYTES - opener->plain_bytes,
        };
        *low_bytes = left_bytes == 0 ? (uint32_t)parts[count].iov_len : left_bytes;
        count++;
    }
    return count;
}

/* Opens the record at `at` to a list of runs and one byte, its type. */
static int32_t record_open(struct sl_record_key *key, const unsigned char *at, uint32_t body_bytes,
                           struct sl_runs to, uint8_t *type)
{
    const unsigned char *from = at + SL_RECORD_HEAD_BYTES;
    uint32_t left_bytes = body_bytes - 1 - SL_RECORD_TAG_BYTES;
    bool done = record_begin(key, at);
    while (done && left_bytes > 0) {
        struct iovec part = sl_runs_part(&to, left_bytes);
        done = sl_aead_part(&key->aead, part.iov_base, from, part.iov_len);
        sl_runs_skip(&to, part.iov_len);
        from += part.iov_len;
        left_bytes -= (uint32_t)part.iov_len;
    }
    done =
        done && sl_aead_part(&key->aead, type, from, 1) && sl_aead_open_end(&key->aead, from + 1);
    return done ? 0 : -EBADMSG;
}

/* Handles an alert, which ends the connection, or a key update. */
static int32_t message_take(struct sl_records *opener, uint8_t type, const unsigned char *bytes,
                            uint32_t length_bytes)
{
    static const unsigned char update[KEY_UPDATE_BYTES] = {KEY_UPDATE, 0, 0, 1, 0};
    if (type == TYPE_ALERT && length_bytes == ALERT_BYTES) {
        return -ECONNRESET;
    }
    if (type == TYPE_HANDSHAKE && length_bytes == KEY_UPDATE_BYTES &&
        memcmp(bytes, update, sizeof(update)) == 0) {
        return key_update(&opener->key) ? 0 : -ENOMEM;
    }
    return -EPROTO;
}

/* Length of the first record; 0: it is incomplete. */
static int32_t record_whole(const struct sl_records *opener)
{
    const unsigned char *head = opener->staging + opener->begin;
    uint32_t here_bytes = opener->end - opener->begin;
    if (here_bytes < SL_RECORD_HEAD_BYTES) {
        return 0;
    }
    uint32_t body_bytes = (uint32_t)head[3] << 8 | head[4];
    if (head[0] != TYPE_DATA || head[1] != 3 || head[2] != 3 ||
        body_bytes < 1 + SL_RECORD_TAG_BYTES ||
        body_bytes > SL_RECORD_PLAIN_MAX + 1 + SL_RECORD_TAG_BYTES) {
        return -EPROTO;
    }
    uint32_t whole_bytes = SL_RECORD_HEAD_BYTES + body_bytes;
    return here_bytes < whole_bytes ? 0 : (int32_t)whole_bytes;
}

/* Opens one record: to its destination, or in the staging. */
static int32_t record_take(struct sl_records *opener, uint32_t whole_bytes, struct sl_runs to,
                           uint32_t length_bytes, struct sl_digest_stream *digest)
{
    unsigned char *at = opener->staging + opener->begin;
    uint32_t body_bytes = whole_bytes - SL_RECORD_HEAD_BYTES;
    uint32_t plain_bytes = body_bytes - 1 - SL_RECORD_TAG_BYTES;
    bool straight = plain_bytes >= STRAIGHT_BYTES && plain_bytes <= length_bytes;
    uint8_t type = 0;
    struct sl_runs within = sl_runs_of(at + SL_RECORD_HEAD_BYTES, body_bytes);
    int32_t result = record_open(&opener->key, at, body_bytes, straight ? to : within, &type);
    if (result < 0) {
        return result;
    }
    opener->begin += whole_bytes;
    if (type != TYPE_DATA) { /* padding also: we never use it */
        return straight ? -EPROTO : message_take(opener, type, within.at, plain_bytes);
    }
    if (!straight) {
        opener->plain_at = (uint32_t)(within.at - opener->staging);
        opener->plain_bytes = plain_bytes;
        return 0;
    }
    if (digest != NULL) {
        sl_runs_feed(to, plain_bytes, digest);
    }
    return (int32_t)plain_bytes;
}

/* Opens records until there are bytes: in `to`, whose number it gives, or plain in the staging. */
static int32_t open_next(struct sl_records *opener, struct sl_runs to, uint32_t length_bytes,
                         struct sl_digest_stream *digest)
{
    int32_t result = opener->over;
    while (!opener->clear && opener->plain_bytes == 0 && result == 0) {
        result = record_whole(opener);
        if (result == 0) {
            return 0;
        }
        if (result > 0) {
            result = record_take(opener, (uint32_t)result, to, length_bytes, digest);
        }
    }
    opener->over = SL_MIN(result, 0);
    return result;
}

int32_t sl_opener_take(struct sl_records *opener, struct sl_runs to, uint32_t length_bytes,
                       struct sl_digest_stream *digest)
{
    if (opener->straight_bytes > 0) {
        uint32_t bytes = opener->straight_bytes;
        SL_ASSERT(bytes <= length_bytes);
        opener->straight_bytes = 0;
        if (digest != NULL) {
            sl_runs_feed(to, bytes, digest);
        }
        return (int32_t)bytes;
    }
    int32_t result = open_next(opener, to, length_bytes, digest);
    if (result != 0) {
        return result;
    }
    uint32_t bytes = SL_MIN(opener->plain_bytes, length_bytes);
    sl_runs_write(to, opener->staging + opener->plain_at, bytes);
    if (digest != NULL) {
        sl_digest_feed(digest, opener->staging + opener->plain_at, bytes);
    }
    opener->plain_at += bytes;
    opener->plain_bytes -= bytes;
    return (int32_t)bytes;
}

int32_t sl_opener_expect(struct sl_records *opener, const unsigned char head[SL_WIRE_ANSWER_BYTES])
{
    int32_t result = open_next(opener, (struct sl_runs){0}, 0, NULL);
    bool whole = opener->plain_bytes >= SL_WIRE_ANSWER_BYTES;
    if (result != 0 || opener->plain_bytes == 0 || (opener->clear && !whole)) {
        return result;
    }
    if (!whole || memcmp(opener->staging + opener->plain_at, head, SL_WIRE_ANSWER_BYTES) != 0) {
        return -ECANCELED;
    }
    opener->plain_at += SL_WIRE_ANSWER_BYTES;
    opener->plain_bytes -= SL_WIRE_ANSWER_BYTES;
    return (int32_t)SL_WIRE_ANSWER_BYTES;
}

/* ---- sealing ---- */

static void head_write(uint8_t *at, uint32_t body_bytes)
{
    at[0] = TYPE_DATA;
    at[1] = at[2] = 3;
    at[3] = (uint8_t)(body_bytes >> 8);
    at[4] = (uint8_t)body_bytes;
}

/* Adds type and tag after the sealed bytes of a record in the staging. */
static bool record_end(struct sl_records *sealer, uint32_t plain_bytes, uint8_t type)
{
    unsigned char *at = sealer->staging + sealer->end + SL_RECORD_HEAD_BYTES + plain_bytes;
    bool done = sl_aead_part(&sealer->key.aead, at, &type, 1) &&
                sl_aead_seal_end(&sealer->key.aead, at + 1);
    sealer->end += plain_bytes + SL_RECORD_OVER_BYTES;
    return done;
}

static bool update_seal(struct sl_records *sealer)
{
    static const unsigned char update[KEY_UPDATE_BYTES] = {KEY_UPDATE, 0, 0, 1, 0};
    unsigned char *at = sealer->staging + sealer->end;
    head_write(at, sizeof(update) + 1 + SL_RECORD_TAG_BYTES);
    return record_begin(&sealer->key, at) &&
           sl_aead_part(&sealer->key.aead, at + SL_RECORD_HEAD_BYTES, update, sizeof(update)) &&
           record_end(sealer, sizeof(update), TYPE_HANDSHAKE) && key_update(&sealer->key);
}

/* Number of bytes for the next record: one head, or part of the value after it. */
static uint32_t record_plan(const struct sl_seal_job *job, uint32_t bytes_max)
{
    const struct msghdr *message = job->message;
    uint32_t bytes = 0;
    for (size_t i = 0; i < message->msg_iovlen && bytes < bytes_max; i++) {
        bool is_head = job->heads[message->msg_iov + i - job->parts] != 0;
        if (i > 0 && is_head) {
            break;
        }
        bytes += (uint32_t)SL_MIN(message->msg_iov[i].iov_len, (size_t)(bytes_max - bytes));
        if (is_head) {
            break;
        }
    }
    return bytes;
}

static void message_skip(struct msghdr *message, size_t length_bytes)
{
    while (message->msg_iovlen > 0 && length_bytes >= message->msg_iov->iov_len) {
        length_bytes -= message->msg_iov->iov_len;
        message->msg_iov++;
        message->msg_iovlen--;
    }
    if (message->msg_iovlen > 0) {
        message->msg_iov->iov_base = (unsigned char *)message->msg_iov->iov_base + length_bytes;
        message->msg_iov->iov_len -= length_bytes;
    }
}

static bool record_seal(const struct sl_seal_job *job, uint32_t plain_bytes)
{
    struct sl_records *sealer = job->sealer;
    struct msghdr *message = job->message;
    unsigned char *at = sealer->staging + sealer->end;
    uint32_t sealed_bytes = 0;
    head_write(at, plain_bytes + 1 + SL_RECORD_TAG_BYTES);
    bool done = record_begin(&sealer->key, at);
    while (done && sealed_bytes < plain_bytes) {
        size_t bytes = SL_MIN(message->msg_iov->iov_len, (size_t)(plain_bytes - sealed_bytes));
        done = sl_aead_part(&sealer->key.aead, at + SL_RECORD_HEAD_BYTES + sealed_bytes,
                            message->msg_iov->iov_base, bytes);
        sealed_bytes += (uint32_t)bytes;
        message_skip(message, bytes);
    }
    return done && record_end(sealer, plain_bytes, TYPE_DATA);
}

int32_t sl_seal_fill(const struct sl_seal_job *job)
{
    struct sl_records *sealer = job->sealer;
    SL_ASSERT(sealer->begin == sealer->end);
    sealer->begin = sealer->end = 0;
    while (job->message->msg_iovlen > 0) {
        uint32_t room_bytes = sealer->room_bytes - sealer->end;
        uint32_t plain_bytes = record_plan(job, SL_RECORD_PLAIN_MAX);
        if (plain_bytes + 2 * SL_RECORD_OVER_BYTES + KEY_UPDATE_BYTES > room_bytes) {
            break;
        }
        if (sealer->key.sequence >= sealer->key.update_after && !update_seal(sealer)) {
            return -ENOMEM;
        }
        if (!record_seal(job, plain_bytes)) {
            return -ENOMEM;
        }
    }
    SL_ASSERT(sealer->end > 0 || job->message->msg_iovlen == 0);
    return 0;
}

int32_t sl_seal_next(const struct sl_seal_job *job, struct msghdr *out)
{
    struct sl_records *sealer = job->sealer;
    if (sealer->clear) {
        *out = *job->message;
        return out->msg_iovlen > 0;
    }
    int32_t result = sealer->begin == sealer->end ? sl_seal_fill(job) : 0;
    sealer->part = (struct iovec){.iov_base = sealer->staging + sealer->begin,
                                  .iov_len = sealer->end - sealer->begin};
    *out = (struct msghdr){.msg_iov = &sealer->part, .msg_iovlen = 1};
    return result < 0 ? result : sealer->part.iov_len > 0;
}

void sl_seal_sent(const struct sl_seal_job *job, uint32_t length_bytes)
{
    if (job->sealer->clear) {
        message_skip(job->message, length_bytes);
    } else {
        job->sealer->begin += length_bytes;
    }
}

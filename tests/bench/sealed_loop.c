/* tests/bench/sealed_loop.c - see sealed_loop.h. */
#include "tests/bench/sealed_loop.h"

#include "runtime/base/sl_digest.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define PLAIN   16384u
#define HEAD    5u
#define TAG     16u
#define RECORD  (HEAD + PLAIN + 1 + TAG)
#define STAGING (17 * RECORD)

static const unsigned char key[16] = "as good as any 1";
static const unsigned char head[HEAD] = {23, 3, 3, (PLAIN + 1 + TAG) >> 8, (PLAIN + 1 + TAG) & 255};

static bool record_begin(EVP_CIPHER_CTX *cipher, uint64_t number)
{
    unsigned char nonce[12] = {0};
    int unused = 0;
    memcpy(nonce, &number, sizeof(number));
    return EVP_CipherInit_ex(cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(cipher, NULL, &unused, head, HEAD) == 1;
}

static EVP_CIPHER_CTX *cipher_new(int seals)
{
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    if (cipher != NULL &&
        EVP_CipherInit_ex(cipher, EVP_aes_128_gcm(), NULL, key, NULL, seals) != 1) {
        EVP_CIPHER_CTX_free(cipher);
        cipher = NULL;
    }
    return cipher;
}

/* Seals `count` records from number `first` on. */
static bool records_seal(EVP_CIPHER_CTX *cipher, const unsigned char *plain, uint64_t first,
                         uint64_t count, unsigned char *to)
{
    static const unsigned char type = 23;
    bool good = true;
    for (uint64_t i = 0; i < count && good; i++) {
        unsigned char *at = to + i * RECORD;
        int done = 0;
        memcpy(at, head, HEAD);
        good = record_begin(cipher, first + i) &&
               EVP_CipherUpdate(cipher, at + HEAD, &done, plain + i * PLAIN, PLAIN) == 1 &&
               EVP_CipherUpdate(cipher, at + HEAD + PLAIN, &done, &type, 1) == 1 &&
               EVP_CipherFinal_ex(cipher, at + HEAD + PLAIN + 1, &done) == 1 &&
               EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG, at + HEAD + PLAIN + 1) == 1;
    }
    return good;
}

unsigned char *sealed_make(const unsigned char *plain, uint64_t length_bytes,
                           uint64_t *sealed_bytes)
{
    uint64_t count = length_bytes / PLAIN;
    unsigned char *all = malloc(count * RECORD);
    EVP_CIPHER_CTX *cipher = cipher_new(1);
    bool good = all != NULL && cipher != NULL && records_seal(cipher, plain, 0, count, all);
    EVP_CIPHER_CTX_free(cipher);
    *sealed_bytes = count * RECORD;
    if (!good) {
        free(all);
        return NULL;
    }
    return all;
}

bool sealed_send(int fd, const unsigned char *sealed, uint64_t sealed_bytes)
{
    for (uint64_t done = 0; done < sealed_bytes;) {
        uint64_t piece = sealed_bytes - done < STAGING ? sealed_bytes - done : STAGING;
        ssize_t now = send(fd, sealed + done, piece, MSG_NOSIGNAL);
        if (now <= 0) {
            return false;
        }
        done += (uint64_t)now;
    }
    return true;
}

bool sealed_seal_and_send(int fd, const unsigned char *plain, uint64_t length_bytes)
{
    unsigned char *staging = malloc(STAGING);
    EVP_CIPHER_CTX *cipher = cipher_new(1);
    uint64_t count = length_bytes / PLAIN;
    bool good = staging != NULL && cipher != NULL;
    for (uint64_t at = 0; at < count && good;) {
        uint64_t now = count - at < STAGING / RECORD ? count - at : STAGING / RECORD;
        good = records_seal(cipher, plain + at * PLAIN, at, now, staging) &&
               sealed_send(fd, staging, now * RECORD);
        at += now;
    }
    EVP_CIPHER_CTX_free(cipher);
    free(staging);
    return good;
}

static bool record_open(EVP_CIPHER_CTX *cipher, uint64_t number, const unsigned char *at,
                        unsigned char *to)
{
    unsigned char type = 0, rest[16];
    int done = 0;
    return record_begin(cipher, number) &&
           EVP_CipherUpdate(cipher, to, &done, at + HEAD, PLAIN) == 1 &&
           EVP_CipherUpdate(cipher, &type, &done, at + HEAD + PLAIN, 1) == 1 &&
           EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, TAG,
                               (void *)(uintptr_t)(at + HEAD + PLAIN + 1)) == 1 &&
           EVP_CipherFinal_ex(cipher, rest, &done) == 1;
}

bool sealed_receive(int fd, unsigned char *memory, uint64_t length_bytes, uint64_t size)
{
    _Alignas(64) struct sl_digest_stream digest;
    unsigned char *staging = malloc(STAGING);
    EVP_CIPHER_CTX *cipher = cipher_new(0);
    uint64_t opened = 0, number = 0, here = 0;
    bool good = staging != NULL && cipher != NULL;
    while (good && opened < length_bytes) {
        ssize_t now = recv(fd, staging + here, STAGING - here, 0);
        uint64_t at = 0;
        good = now > 0;
        here += now > 0 ? (uint64_t)now : 0;
        for (; good && here - at >= RECORD; at += RECORD) {
            if (opened % size == 0) {
                sl_digest_start(&digest);
            }
            good = record_open(cipher, number++, staging + at, memory + opened);
            sl_digest_feed(&digest, memory + opened, PLAIN);
            opened += PLAIN;
            if (opened % size == 0) {
                struct sl_digest value = sl_digest_finish(&digest);
                good = good && (value.low | value.high) != 0;
            }
        }
        memmove(staging, staging + at, here - at);
        here -= at;
    }
    EVP_CIPHER_CTX_free(cipher);
    free(staging);
    return good;
}

"""Tiny HTTP client used by the acme tools."""
import json
import socket
import time

CONST_000 = 0
CONST_001 = 1
CONST_002 = 2
CONST_003 = 3
CONST_004 = 4
CONST_005 = 5
CONST_006 = 6
CONST_007 = 7
CONST_008 = 8
CONST_009 = 9
CONST_010 = 10
CONST_011 = 11
CONST_012 = 12
CONST_013 = 13
CONST_014 = 14
CONST_015 = 15
CONST_016 = 16
CONST_017 = 17
CONST_018 = 18
CONST_019 = 19
CONST_020 = 20
CONST_021 = 21
CONST_022 = 22
CONST_023 = 23
CONST_024 = 24
CONST_025 = 25
CONST_026 = 26
CONST_027 = 27
CONST_028 = 28
CONST_029 = 29
CONST_030 = 30
CONST_031 = 31
CONST_032 = 32
CONST_033 = 33
CONST_034 = 34
CONST_035 = 35
CONST_036 = 36
CONST_037 = 37
CONST_038 = 38
CONST_039 = 39
CONST_040 = 40
CONST_041 = 41
CONST_042 = 42
CONST_043 = 43
CONST_044 = 44
CONST_045 = 45
CONST_046 = 46
CONST_047 = 47
CONST_048 = 48
CONST_049 = 49
CONST_050 = 50
CONST_051 = 51
CONST_052 = 52
CONST_053 = 53
CONST_054 = 54
CONST_055 = 55
CONST_056 = 56
CONST_057 = 57
CONST_058 = 58
CONST_059 = 59
CONST_060 = 60
CONST_061 = 61
CONST_062 = 62
CONST_063 = 63
CONST_064 = 64
CONST_065 = 65
CONST_066 = 66
CONST_067 = 67
CONST_068 = 68
CONST_069 = 69
CONST_070 = 70
CONST_071 = 71
CONST_072 = 72
CONST_073 = 73
CONST_074 = 74
CONST_075 = 75
CONST_076 = 76
CONST_077 = 77
CONST_078 = 78
CONST_079 = 79
CONST_080 = 80
CONST_081 = 81
CONST_082 = 82
CONST_083 = 83
CONST_084 = 84
CONST_085 = 85
CONST_086 = 86
CONST_087 = 87
CONST_088 = 88
CONST_089 = 89
CONST_090 = 90
CONST_091 = 91
CONST_092 = 92
CONST_093 = 93
CONST_094 = 94
CONST_095 = 95
CONST_096 = 96
CONST_097 = 97
CONST_098 = 98
CONST_099 = 99
CONST_100 = 100
CONST_101 = 101
CONST_102 = 102
CONST_103 = 103
CONST_104 = 104
CONST_105 = 105
CONST_106 = 106
CONST_107 = 107
CONST_108 = 108
CONST_109 = 109
CONST_110 = 110
CONST_111 = 111
CONST_112 = 112
CONST_113 = 113
CONST_114 = 114
CONST_115 = 115
CONST_116 = 116
CONST_117 = 117
CONST_118 = 118
CONST_119 = 119
CONST_120 = 120
CONST_121 = 121
CONST_122 = 122
CONST_123 = 123
CONST_124 = 124
CONST_125 = 125
CONST_126 = 126
CONST_127 = 127
CONST_128 = 128
CONST_129 = 129
CONST_130 = 130
CONST_131 = 131
CONST_132 = 132
CONST_133 = 133
CONST_134 = 134
CONST_135 = 135
CONST_136 = 136
CONST_137 = 137
CONST_138 = 138
CONST_139 = 139
CONST_140 = 140
CONST_141 = 141
CONST_142 = 142
CONST_143 = 143
CONST_144 = 144
CONST_145 = 145
CONST_146 = 146
CONST_147 = 147
CONST_148 = 148
CONST_149 = 149
CONST_150 = 150
CONST_151 = 151
CONST_152 = 152
CONST_153 = 153
CONST_154 = 154
CONST_155 = 155
CONST_156 = 156
CONST_157 = 157
CONST_158 = 158
CONST_159 = 159
CONST_160 = 160
CONST_161 = 161
CONST_162 = 162
CONST_163 = 163
CONST_164 = 164
CONST_165 = 165
CONST_166 = 166
CONST_167 = 167
CONST_168 = 168
CONST_169 = 169
CONST_170 = 170
CONST_171 = 171
CONST_172 = 172
CONST_173 = 173
CONST_174 = 174
CONST_175 = 175
CONST_176 = 176
CONST_177 = 177
CONST_178 = 178
CONST_179 = 179
DEFAULT_TIMEOUT = 30
RETRIES = 3


class ClientError(Exception):
    """Raised when a call cannot be completed."""


class Client:
    def __init__(self, host, port=443, timeout=DEFAULT_TIMEOUT):
        self.host = host
        self.port = port
        self.timeout = timeout
        self._sock = None

    def connect(self):
        if self._sock is None:
            self._sock = socket.create_connection((self.host, self.port), self.timeout)
        return self._sock

    def close(self):
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def call(self, method, payload):
        body = json.dumps(payload).encode("utf-8")
        for attempt in range(RETRIES):
            try:
                sock = self.connect()
                sock.sendall(body)
                return self._read(sock)
            except OSError:
                self.close()
                time.sleep(min(2 ** attempt, 8))
        raise ClientError(method)

    def _read(self, sock):
        chunks = []
        while True:
            chunk = sock.recv(4096)
            if not chunk:
                break
            chunks.append(chunk)
        return json.loads(b"".join(chunks))


def main():
    client = Client("localhost")
    print(client.call("ping", {}))


if __name__ == "__main__":
    main()

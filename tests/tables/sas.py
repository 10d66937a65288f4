"""A small SAS table and its catalogue of formats, since pyreadstat writes neither.

Both were written for these tests, with the writer of the ReadStat library: 40 rows of a case's
number, a health code of the format HEALTH, a pay that is missing in every fifth row, days from 10
January 2023, times that rise by a quarter of an hour, and a town that is blank, Basel or Bern. The
catalogue has 1 "Very good", 2 "Good" and 3 "Bad" as the format HEALTH.
"""

import zlib
from base64 import b85decode
from pathlib import Path

_TABLE = (
    b"c-rlnTS(JU9LLWp%q|Zzg!W)GOkzaImZq~T&!!85*^5I6M3NjR$P6!C$m-waG3aImv8T|tphASeqE&RE3tcrc&C5"
    b"d%(L=ptk+uHYIlt!b$CiN+RKL%VALqC4Is5#N=RY=>5D9L)J+QSqGvm?K6X{~!9oG@tQfo$@5ZS^aT;iu>qEV%%("
    b"!Oz%-&f`dcq)AXdn&{<#OAA<EV!^^#FMCm*h*F*W|4MLuG8goRXEL>Z`J~TL#S<+U>JsB7=~dOhG7_nVHk#C7=~d"
    b"OhGCfhkp<>Mh=GM_<d}`0jp)9O%&OD<YG_z=PWSz!A6}qpJLy;Jz9j2srRWdMPu>rw=vSxcXQk*f48t%C!~Dy9`x"
    b"1@wr{?=b+KlFx&2auq{fmF|>rblb(R$KPH~;3CACS|@*h<DWGPaYk1C8;oXZ1@*-HA`c`s#9YT`AO80jD`PM!v3Y"
    b"T@!rOYn4yw(cb`Xt8EE3)Co}^tZi&HFL-<HZqX79hU%Nznp>N8hRS^&f1o`6n_yp2t`LDu6+X9FKbpkmr;*p3F!_"
    b"}|cIxU#@qF5J3s{r4qXd38Vg5=iQ}2xTC8$36v_D?=^r!loEKxmoG+rg-?MI~7yzd(m?`#s)S;ykl_>m7wZ?HKu<"
    b">r&fCr{-gkhgUauT1Pyr}Cm5);~{tY}iL%uY`QZCE}BXeQs-i$lH2|j~)9=Xn)9uFB6|^?Bh7D>R#}_LVR+t&lZ)"
    b"Jkng-ke3oM$eZ2<cJFXKS2lnYz>qj78b(8q4z&`J^|328CTf}E2_E~a5`9ps2Hu1^DKATnEfPDBa@o~yz=Q#rTnt"
    b"Q~@g?%on^~HYJ{|CfpHTD_P{*WJkNPP0J&!UscAM%}#h)+KDDOLFh<hvgepEXI(voPTQ`-J!uV4p6vzJz?+Q{q#I"
    b"efqUO<g1<$A2;@y+oAj+U-+E(6k#8?%8LVVe)@>d+N9@MLjH3f@mYs`&Z_kd$Pe}tpJMEDU;9J8_XY7;k9{V!|3N"
    b"sP1H@+o_E~jG?LXxAz9c>+NzbzZ`I<rEBeBm>wSENhC9klLA+b+H<;5X5|3k#bgMB_|f5=;gv5(=wKG~<${zHCzn"
    b"Cy=?>3NPo{^o1!V|cO8VYR+E4ENUv*`HGE)1&fI=MC>D*`HGE^G5r_`rV^sf6B1W;xlUhVf|%el0Sej48t%C^Sk*"
    b"Dcp10H"
)
_CATALOGUE = (
    b"c-rmTF>3-b6u|Lkb<j=0!Og=DQ0|}z-5Tpvg^18QO4m|Fx>P7w+R@#~FXGTy6c<N7g1b`}cLUXWYSn_c$o~i7k@x"
    b"a4BwHXNE5m8)`74<i_c~FDjhuEW9ZzILG7=I;_DZhJJmpz;CGF;wuRPbcc98>aO~0-b%(|Ow_kE&PaYMw6_)l26z"
    b"O)_NDcdGqnV8itugwnu000000002sIFH)9Up!0yQ-wnV00000000000B{1ctxVBX+Ar?<vlCv7<D~w`^}jc(p+I%"
    b"8)q4@FM%VX>$wTe!)2cTb)!$r13c+bua!*z69{>OV0B~;RrH(3x"
)


def write_table(path: Path) -> None:
    """Write the table."""
    path.write_bytes(zlib.decompress(b85decode(_TABLE)))


def write_catalogue(path: Path) -> None:
    """Write the catalogue."""
    path.write_bytes(zlib.decompress(b85decode(_CATALOGUE)))
